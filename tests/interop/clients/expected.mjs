// The answers that `tools` must give, computed from its contract (docs/protocols/streaming-tools.md).

export const TOOLS = [
  'bulk', 'chatty', 'connect', 'countdown', 'delete', 'long_output', 'progress',
  'rename', 'stuck', 'summarise', 'survey', 'whoami',
];
export const READ_ONLY = ['chatty', 'long_output', 'whoami'];

export const CHATTY = [
  'first block: short',
  'second block: a slightly longer string with multiple words',
  'third block: numbers 1 2 3 4 5',
  'fourth block: unicode; café résumé naïve',
];

const STEPS = {
  gather: 'Gathering information and context',
  analyze: 'Analyzing data and patterns',
  synthesize: 'Synthesizing insights',
  validate: 'Validating conclusions',
  format: 'Formatting final report',
};

/** Block i is its header padded to `chars` bytes with `abcdefghij` repeating; a longer header is cut. */
export function longOutput(blocks, chars) {
  const pad = 'abcdefghij'.repeat(chars / 10 + 1);
  return Array.from({ length: blocks }, (_, i) => `[block ${i}] ${pad}`.slice(0, chars));
}

/** Each update of a countdown. */
export function countdown(from) {
  const messages = Array.from({ length: from }, (_, i) => `Counting down: ${from - i}`);
  return [...messages, 'Countdown complete! 🎉'].map((message, progress) => ({ progress, total: from, message }));
}

export function workflowUpdates() {
  return Object.values(STEPS).map((step, i) => ({ progress: i + 1, total: 5, message: `Step ${i + 1}/5: ${step}` }));
}

/** The prompt that the workflow returns. */
export function workflow(topic) {
  const steps = Object.entries(STEPS).map(([name, step]) => `✓ ${name} - ${step}`);
  const text = ['Analysis Workflow Complete', '', `Topic: ${topic}`, '', 'Steps:', ...steps, '', 'Ready for review.'].join('\n');
  return { description: `Multi-step analysis workflow for: ${topic}`, messages: [{ role: 'user', content: { type: 'text', text } }] };
}
