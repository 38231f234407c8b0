// A server made with the TypeScript SDK, 2.x, for tests of `call`. The first request of the client determines the era that it serves; with
// `--modern` it serves 2026-07-28 alone. It serves on standard input and output, or over HTTP if its first argument is a port.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const sdk = createRequire(join(process.env.DEPS, 'node', 'package.json'));
const { getRequestListener } = sdk('@hono/node-server');
const { createMcpHandler, fromJsonSchema, inputRequired, inputResponse, McpServer } = sdk('@modelcontextprotocol/server');
const { serveStdio } = sdk('@modelcontextprotocol/server/stdio');

// A state with characters that a client must return unchanged.
const ODD = ' a "state"\n\twith\\every/thing+ \u0000 Ω 🦊 ';

// The number of calls of `work` that were cancelled, at all servers: over HTTP each request has a server of its own.
let cancelled = 0;

const text = (text) => ({ content: [{ type: 'text', text }] });

function build() {
  const server = new McpServer({ name: 'interop', version: '1.0.0' }, { capabilities: { logging: {} } });

  const description = 'Reports each step, then takes its time over it.';
  const numbers = { steps: { type: 'integer' }, step_ms: { type: 'integer' } };
  const inputSchema = fromJsonSchema({ type: 'object', properties: numbers, required: ['steps', 'step_ms'] });
  server.registerTool('work', { description, inputSchema }, async ({ steps, step_ms }, { mcpReq: { _meta, notify, signal } }) => {
    signal.addEventListener('abort', () => cancelled++);
    for (let i = 1; i <= steps; i++) {
      const progress = { progressToken: _meta?.progressToken, progress: i, total: steps, message: `step ${i} of ${steps}` };
      if (_meta?.progressToken !== undefined) await notify({ method: 'notifications/progress', params: progress });
      await sleep(step_ms, undefined, { signal });
    }
    return text(`worked ${steps} steps`);
  });

  server.registerTool('interrupted', { description: 'Tells how many works were cancelled.' }, () => text(String(cancelled)));

  server.registerTool('fail', { description: 'Fails.' }, () => {
    throw new Error('no luck today');
  });

  // Each of these tools returns an input request, unless the call has the answer.
  const who = { message: 'Who are you?', requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } };
  const asks = (name, description, ask, write) =>
    server.registerTool(name, { description }, ({ mcpReq: { inputResponses } }) => {
      const answer = inputResponse(inputResponses, 'asked');
      return answer.kind === 'missing' ? inputRequired({ inputRequests: { asked: ask } }) : text(write(answer));
    });
  const action = ({ action }) => `the user said: ${action}`;
  const named = (answer) => (answer.action === 'accept' ? `the user is ${answer.content.name}` : action(answer));
  const model = (question) => ({ messages: [{ role: 'user', content: { type: 'text', text: question } }], maxTokens: 100 });

  asks('ask_user', "Asks the caller's user for a name.", inputRequired.elicit(who), named);
  const agreement = { message: 'Go ahead?', requestedSchema: { type: 'object', properties: {} } };
  asks('confirm', "Asks the caller's user for a yes, with nothing to fill in.", inputRequired.elicit(agreement), action);
  const address = { message: 'Please', url: 'https://example.com/x?y=1' };
  asks('open', "Asks the caller's user to open an address.", inputRequired.elicitUrl(address), action);
  const thought = ({ result }) => `the model said: ${result.content.text}`;
  asks('ask_model', "Asks the caller's model.", inputRequired.createMessage(model('How many?')), thought);
  const listed = ({ roots }) => roots.map(({ uri }) => uri).join(' ');
  asks('list_folders', 'Asks for the folders of the caller.', inputRequired.listRoots(), listed);

  server.registerTool('ask_both', { description: 'Asks the user and the model at once.' }, ({ mcpReq: { inputResponses } }) => {
    const [name, opinion] = ['name', 'opinion'].map((key) => inputResponse(inputResponses, key));
    if (name.kind === 'elicit' && opinion.kind === 'sampling') return text(`${named(name)}, ${thought(opinion)}`);
    const inputRequests = { name: inputRequired.elicit(who), opinion: inputRequired.createMessage(model('How many?')) };
    return inputRequired({ inputRequests });
  });

  server.registerPrompt('greeting', { description: 'Asks for a name first.' }, ({ mcpReq: { inputResponses } }) => {
    const answer = inputResponse(inputResponses, 'name');
    if (answer.kind === 'missing') return inputRequired({ inputRequests: { name: inputRequired.elicit(who) }, requestState: ODD });
    return { messages: [{ role: 'user', content: { type: 'text', text: `Greet ${answer.content.name}.` } }] };
  });

  server.registerTool('interview', { description: 'Asks the user for a name, then the model about it.' }, async ({ mcpReq }) => {
    const { _meta, inputResponses, notify } = mcpReq;
    const report = async (progress) => {
      const params = { progressToken: _meta?.progressToken, progress, total: 3, message: `step ${progress} of 3` };
      if (_meta?.progressToken !== undefined) await notify({ method: 'notifications/progress', params });
    };
    const state = mcpReq.requestState();
    if (state === undefined) {
      await report(1);
      return inputRequired({ inputRequests: { name: inputRequired.elicit(who) }, requestState: ODD });
    }
    if (state === ODD) {
      await report(2);
      const { name } = inputResponse(inputResponses, 'name').content;
      const question = inputRequired.createMessage(model(`What do you think of ${name}?`));
      return inputRequired({ inputRequests: { opinion: question }, requestState: ODD + name });
    }
    await report(3);
    return text(`${state.slice(ODD.length)}: ${inputResponse(inputResponses, 'opinion').result.content.text}`);
  });

  server.registerTool('later', { description: 'Twice wants to be called again.' }, ({ mcpReq: { inputResponses, requestState } }) => {
    const turn = Number(requestState() ?? 0);
    if (turn < 2) return inputRequired({ requestState: String(turn + 1) });
    return text(`called again ${turn} times, with ${Object.keys(inputResponses ?? {}).length} answers`);
  });

  server.registerTool('endless', { description: 'Asks for a name again and again.' }, () =>
    inputRequired({ inputRequests: { name: inputRequired.elicit(who) }, requestState: 'again' }),
  );

  server.registerTool('talk', { description: 'Logs a warning.' }, async ({ mcpReq }) => {
    await mcpReq.log('warning', 'the weather turns');
    return text('talked');
  });
  return server;
}

const port = Number(process.argv[2]);
if (port) {
  createServer(getRequestListener(createMcpHandler(build).fetch)).listen(port, '127.0.0.1');
} else {
  serveStdio(build, { legacy: process.argv.includes('--modern') ? 'reject' : 'serve' });
}
