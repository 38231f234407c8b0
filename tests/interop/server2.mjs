// A server made with the TypeScript SDK, 2.x, for `call` to drive. What the client says first decides the era it serves; with
// `--modern` it serves 2026-07-28 alone.

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const sdk = createRequire(join(process.env.DEPS, 'node', 'package.json'));
const { fromJsonSchema, inputRequired, McpServer } = sdk('@modelcontextprotocol/server');
const { serveStdio } = sdk('@modelcontextprotocol/server/stdio');

const text = (text) => ({ content: [{ type: 'text', text }] });

function build() {
  const server = new McpServer({ name: 'interop', version: '1.0.0' }, { capabilities: { logging: {} } });

  const description = 'Reports each step, then takes its time over it.';
  const numbers = { steps: { type: 'integer' }, step_ms: { type: 'integer' } };
  const inputSchema = fromJsonSchema({ type: 'object', properties: numbers, required: ['steps', 'step_ms'] });
  server.registerTool('work', { description, inputSchema }, async ({ steps, step_ms }, { mcpReq: { _meta, notify, signal } }) => {
    for (let i = 1; i <= steps; i++) {
      const progress = { progressToken: _meta?.progressToken, progress: i, total: steps, message: `step ${i} of ${steps}` };
      if (_meta?.progressToken !== undefined) await notify({ method: 'notifications/progress', params: progress });
      await sleep(step_ms, undefined, { signal });
    }
    return text(`worked ${steps} steps`);
  });

  server.registerTool('fail', { description: 'Fails.' }, () => {
    throw new Error('no luck today');
  });

  server.registerTool('ask_user', { description: "Asks the caller's user for a name." }, () => {
    const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
    return inputRequired({ inputRequests: { name: inputRequired.elicit({ message: 'Who are you?', requestedSchema }) } });
  });

  server.registerTool('talk', { description: 'Logs a warning.' }, async ({ mcpReq }) => {
    await mcpReq.log('warning', 'the weather turns');
    return text('talked');
  });
  return server;
}

serveStdio(build, { legacy: process.argv.includes('--modern') ? 'reject' : 'serve' });
