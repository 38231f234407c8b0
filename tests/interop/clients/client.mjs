// The official TypeScript client, 1.x, with a tap between it and its server, and checks of its results.

import { mkdtempSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { equal, holds, short } from './scenario.mjs';

const sdk = createRequire(join(process.env.DEPS, 'node', 'package.json'));
const { Client } = sdk('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = sdk('@modelcontextprotocol/sdk/client/stdio.js');
export const types = sdk('@modelcontextprotocol/sdk/types.js');

const TAP = fileURLToPath(new URL('../tap.py', import.meta.url));
export const CLIENT = { name: 'interop', version: '1.2.3' };
export const UP = 'client->server';
export const DOWN = 'server->client';
const logs = mkdtempSync(join(tmpdir(), 'interop-'));
let sessions = 0;

/** Starts a server with a tap, passes the connected client to `use`, and closes the client. */
export async function connect(command, { sample, elicit, open, onOpened, onLog }, use) {
  const log = join(logs, `${sessions++}.jsonl`);
  const capabilities = { ...(sample && { sampling: {} }), ...((elicit || open) && { elicitation: modes({ elicit, open }) }) };
  const client = new Client(CLIENT, { capabilities });
  if (sample) {
    client.setRequestHandler(types.CreateMessageRequestSchema, ({ params }) => ({
      model: 'canned',
      role: 'assistant',
      content: { type: 'text', text: sample(params) },
    }));
  }
  if (elicit || open) {
    client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => (params.mode === 'url' ? open(params) : elicit(params)));
  }
  if (onOpened) client.setNotificationHandler(types.ElicitationCompleteNotificationSchema, ({ params }) => onOpened(params));
  if (onLog) client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ params }) => onLog(params));

  client.call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
  client.traffic = new Traffic(log);
  await client.connect(new StdioClientTransport({ command: process.env.PYTHON, args: ['-I', TAP, log, '--', ...command] }));
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}

/** The modes of elicitation that a client declares: none if it has only forms. */
export function modes({ elicit, open }) {
  return open ? { ...(elicit && { form: {} }), url: {} } : {};
}

/** The frames that a tap has recorded so far. */
export class Traffic {
  constructor(log) {
    this.log = log;
  }

  entries() {
    const lines = readFileSync(this.log, 'utf8').split('\n').slice(0, -1);
    return lines.map((line, at) => ({ at, ...JSON.parse(line) }));
  }

  frames(dir, method) {
    return this.entries().filter((entry) => entry.dir === dir && entry.msg && (!method || entry.msg.method === method));
  }

  answers(request) {
    return this.frames(DOWN).filter(({ msg }) => !msg.method && msg.id === request.msg.id);
  }

  progress(request) {
    const token = request.msg.params._meta.progressToken;
    return this.frames(DOWN, 'notifications/progress').filter(({ msg }) => msg.params.progressToken === token);
  }

  /** The progress notifications for the last request of that method, without the token, after a check that all came before the response. */
  updates(method) {
    const request = this.frames(UP, method).at(-1);
    const frames = this.progress(request);
    const [answer] = this.answers(request);
    holds(`expected all progress before the response, came ${short(frames.at(-1))}`, !frames.length || frames.at(-1).at < answer.at);
    return frames.map(({ msg }) => {
      const { progressToken, ...update } = msg.params;
      return update;
    });
  }
}

export function texts(result) {
  equal('the types of the content blocks', [...new Set(result.content.map((block) => block.type))], ['text']);
  return result.content.map((block) => block.text);
}

/** The structured content, after a check that it is present, and that the only text block has the same JSON. */
export function structured(result) {
  holds(`expected structuredContent, came ${short(result)}`, result.structuredContent);
  equal('the text blocks, read as JSON', texts(result).map((text) => JSON.parse(text)), [result.structuredContent]);
  return result.structuredContent;
}

/** The JSON of a result: the structured content, or the first text if there is none. */
export function value(result) {
  return result.structuredContent ? structured(result) : JSON.parse(texts(result)[0]);
}

export function succeeded(result) {
  holds(`expected a result, came the tool error ${short(result)}`, !result.isError);
  return result;
}

/** The text of the result of a tool that failed. */
export function toolError(result) {
  equal(`isError of ${short(result)}`, result.isError, true);
  return texts(result).join('\n');
}

export async function pages(list, member) {
  const items = [];
  let cursor;
  do {
    const page = await list({ cursor });
    items.push(...page[member]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return items;
}

export const listTools = (client) => pages((params) => client.listTools(params), 'tools');

/** A progress callback that records each update with its time. */
export function collector() {
  const updates = [];
  const times = [];
  const onprogress = (update) => {
    updates.push(update);
    times.push(performance.now());
  };
  return { updates, times, onprogress };
}
