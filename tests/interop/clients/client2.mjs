// The official TypeScript client, 2.x, with a tap between it and its server.

import { mkdtempSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CLIENT, modes, Traffic } from './client.mjs';

export const sdk = createRequire(join(process.env.DEPS, 'node', 'package.json'));
const { Client } = sdk('@modelcontextprotocol/client');
const { StdioClientTransport } = sdk('@modelcontextprotocol/client/stdio');

const TAP = fileURLToPath(new URL('../tap.py', import.meta.url));
const logs = mkdtempSync(join(tmpdir(), 'interop-'));
let sessions = 0;

/** The result of the tool `survey` with the answers of `EVERYTHING`, without the number of the survey. */
export const SURVEY = { participant: 'Ada', opinion: 'Foxes are fine.', publish: true };
/** Handlers that answer every input request. */
export const EVERYTHING = {
  sample: () => SURVEY.opinion,
  elicit: ({ requestedSchema: { properties } }) => ({
    action: 'accept',
    content: Object.fromEntries(Object.keys(properties).map((name) => [name, SURVEY.participant])),
  }),
  open: () => ({ action: 'accept' }),
};

/** A client that declares the capabilities for which it has handlers. `mode` is the way in which it negotiates the era. */
export function client2({ mode, sample, elicit, open, onLog }) {
  const capabilities = { ...(sample && { sampling: {} }), ...((elicit || open) && { elicitation: modes({ elicit, open }) }) };
  const client = new Client(CLIENT, { capabilities, versionNegotiation: { mode } });
  if (sample) {
    client.setRequestHandler('sampling/createMessage', ({ params }) => ({
      model: 'canned',
      role: 'assistant',
      content: { type: 'text', text: sample(params) },
    }));
  }
  if (elicit || open) {
    client.setRequestHandler('elicitation/create', ({ params }) => (params.mode === 'url' ? open(params) : elicit(params)));
  }
  if (onLog) client.setNotificationHandler('notifications/message', ({ params }) => onLog(params));
  client.call = (name, args, options, meta) => client.callTool({ name, arguments: args, ...(meta && { _meta: meta }) }, options);
  return client;
}

/** Starts a server with a tap, passes the connected client to `use`, and closes the client. */
export async function connect2(command, options, use) {
  const log = join(logs, `${sessions++}.jsonl`);
  const client = client2(options);
  client.traffic = new Traffic(log);
  await client.connect(new StdioClientTransport({ command: process.env.PYTHON, args: ['-I', TAP, log, '--', ...command] }));
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}
