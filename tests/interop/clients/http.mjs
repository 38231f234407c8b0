// The scenarios of the official TypeScript clients, 1.x and 2.x, with `tools --http`.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { connect as dial, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { CLIENT, collector, structured, succeeded, texts, types, value } from './client.mjs';
import { client2, EVERYTHING, SURVEY } from './client2.mjs';
import * as expected from './expected.mjs';
import { contains, equal, holds, run, scenario, short } from './scenario.mjs';

const sdk = createRequire(join(process.env.DEPS, 'node', 'package.json'));
const one = { ...sdk('@modelcontextprotocol/sdk/client/index.js'), ...sdk('@modelcontextprotocol/sdk/client/streamableHttp.js') };
const two = sdk('@modelcontextprotocol/client');

const REVISION = '2026-07-28';
const PINNED = { mode: { pin: REVISION } };
const folder = mkdtempSync(join(tmpdir(), 'interop-'));
let servers = 0;

/** Starts `tools --http`, passes `use` its URL and a function that returns the outcomes of its calls so far, and ends it by a signal. */
async function serve(flags, use) {
  const audit = join(folder, `${servers++}.jsonl`);
  const program = spawn(process.env.TOOLS, ['--http', '127.0.0.1:0', '--audit', audit, ...flags], { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = once(program, 'exit');
  try {
    for await (const line of createInterface(program.stderr)) {
      const [, url] = line.match(/listening on (\S+)$/) ?? [];
      if (!url) continue;
      const outcomes = () => readFileSync(audit, 'utf8').split('\n').slice(0, -1).map((line) => JSON.parse(line).outcome);
      return await use({ url, outcomes });
    }
  } finally {
    program.kill('SIGTERM');
    equal('the exit status', (await ended)[0], 0);
  }
}

/** Connects the client 1.x, passes it to `use`, and closes it. */
async function first(url, { sample, elicit, ...options }, use) {
  const capabilities = { ...(sample && { sampling: {} }), ...(elicit && { elicitation: {} }) };
  const client = new one.Client(CLIENT, { capabilities });
  if (sample) {
    const answer = ({ params }) => ({ model: 'canned', role: 'assistant', content: { type: 'text', text: sample(params) } });
    client.setRequestHandler(types.CreateMessageRequestSchema, answer);
  }
  if (elicit) client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => elicit(params));
  const transport = new one.StreamableHTTPClientTransport(new URL(url), options);
  await client.connect(transport);
  client.call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
  try {
    return await use(client, transport);
  } finally {
    await client.close();
  }
}

/** Connects the client 2.x with the options of `client2`, passes it to `use` with the list of its requests so far, and closes it. */
async function second(url, options, use) {
  const client = client2(options);
  const asked = [];
  const fetching = (address, init) => {
    const { method: rpc, id, params } = init?.body ? JSON.parse(init.body) : {};
    asked.push({ method: init?.method ?? 'GET', rpc, id, params, headers: new Headers(init?.headers) });
    return fetch(address, init);
  };
  await client.connect(new two.StreamableHTTPClientTransport(new URL(url), { fetch: fetching }));
  try {
    return await use(client, asked);
  } finally {
    await client.close();
  }
}

const steps = (n) => Array.from({ length: n }, (_, i) => ({ progress: i + 1, total: n, message: `step ${i + 1}/${n}` }));

async function until(what, look) {
  for (let turns = 0; turns < 500; turns++, await sleep(10)) if (look()) return;
  holds(`expected ${what}`, false);
}

// ---- 1.x, with a handshake ----

scenario('1.x opens a session, lists, follows a call to its end, and ends the session', async () => {
  await serve([], async ({ url }) => {
    await first(url, {}, async (client, transport) => {
      equal('the names of the tools, sorted', (await client.listTools()).tools.map(({ name }) => name).sort(), expected.TOOLS);
      const { updates, onprogress } = collector();
      const result = await client.call('progress', { steps: 3, step_ms: 200 }, { onprogress });
      equal('the result', structured(succeeded(result)), { steps: 3, notified: true, done: true });
      equal('the updates handed to the callback', updates, steps(3));
      const session = transport.sessionId;
      holds(`expected the id of a session, came ${session}`, session?.length >= 32);
      await transport.terminateSession();
      const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream', 'mcp-session-id': session };
      const late = await fetch(url, { method: 'POST', headers, body: '{"jsonrpc":"2.0","id":1,"method":"ping"}' });
      equal('the status after the end of the session', late.status, 404);
    });
  });
});

scenario('1.x answers what a tool asks, on the stream of its call', async () => {
  await serve([], async ({ url }) => {
    const sample = () => 'in short';
    const elicit = ({ message }) => ({ action: 'accept', content: message.includes('name') ? { newName: 'new.txt' } : {} });
    await first(url, { sample, elicit }, async (client) => {
      contains('the summary', texts(succeeded(await client.call('summarise', { text: 'a long text' }))).join(), 'in short');
      holds('expected it to be deleted', value(succeeded(await client.call('delete', { name: 'old.txt' }))).deleted);
      equal('the new name', value(succeeded(await client.call('rename', { name: 'old.txt' }))).renamed?.to, 'new.txt');
    });
  });
});

scenario('1.x cancels a call, which ends its response, and the server answers the next call', async () => {
  await serve([], async ({ url, outcomes }) => {
    await first(url, {}, async (client) => {
      const controller = new AbortController();
      let seen = 0;
      const onprogress = () => ++seen === 2 && controller.abort('enough');
      const came = await client.call('countdown', { from: 50, step_ms: 150 }, { onprogress, signal: controller.signal }).catch((error) => error);
      contains('the end of the call', String(came), 'enough');
      succeeded(await client.call('chatty', {}));
      await until('the handler to be cancelled', () => outcomes().includes('cancelled'));
    });
  });
});

scenario('1.x comes back for the rest of a call whose connection broke', async () => {
  await serve([], async ({ url }) => {
    const { port } = new URL(url);
    const sockets = new Set();
    const proxy = createServer((near) => {
      const far = dial(port, '127.0.0.1');
      sockets.add(near);
      near.pipe(far).pipe(near);
      for (const socket of [near, far]) socket.on('error', () => {}).on('close', () => (near.destroy(), far.destroy()));
    });
    await once(proxy.listen(0, '127.0.0.1'), 'listening');
    const reconnectionOptions = { initialReconnectionDelay: 50, maxReconnectionDelay: 50, reconnectionDelayGrowFactor: 1, maxRetries: 5 };
    await first(`http://127.0.0.1:${proxy.address().port}/mcp`, { reconnectionOptions }, async (client) => {
      const updates = [];
      const onprogress = (update) => {
        updates.push(update);
        if (updates.length === 2) for (const socket of sockets) socket.destroy();
      };
      const result = await client.call('progress', { steps: 5, step_ms: 200 }, { onprogress });
      equal('the result', structured(succeeded(result)).steps, 5);
      equal('the updates handed to the callback', updates, steps(5));
    });
    proxy.close();
  });
});

scenario('1.x runs five calls of one session at once, each with its own updates', async () => {
  await serve([], async ({ url }) => {
    await first(url, {}, async (client) => {
      const collectors = Array.from({ length: 5 }, collector);
      const calls = collectors.map(({ onprogress }, i) => client.call('progress', { steps: i + 1, step_ms: 150 }, { onprogress }));
      for (const [i, result] of (await Promise.all(calls)).entries()) {
        equal(`the result of call ${i}`, structured(result).steps, i + 1);
        equal(`the updates of call ${i}`, collectors[i].updates, steps(i + 1));
      }
    });
  });
});

// ---- 2.x, without a handshake, and with one ----

scenario(`2.x, pinned to ${REVISION}, lists and follows a call to its end by POST alone`, async () => {
  await serve([], async ({ url }) => {
    await second(url, PINNED, async (client, asked) => {
      equal('the names of the tools, sorted', (await client.listTools()).tools.map(({ name }) => name).sort(), expected.TOOLS);
      const { updates, onprogress } = collector();
      const result = await client.call('progress', { steps: 3, step_ms: 200 }, { onprogress });
      equal('the result', structured(succeeded(result)), { steps: 3, notified: true, done: true });
      equal('the updates handed to the callback', updates, steps(3));
      equal('the requests', [...new Set(asked.map(({ method, rpc }) => `${method} ${rpc}`))], [
        'POST server/discover',
        'POST tools/list',
        'POST tools/call',
      ]);
      equal('sessions that were named', asked.filter(({ headers }) => headers.has('mcp-session-id')).length, 0);
    });
  });
});

scenario(`2.x, probing, finds ${REVISION}, and falls back to the handshake where only older revisions are served`, async () => {
  await serve([], async ({ url }) => {
    await second(url, { mode: 'auto' }, async (client, asked) => {
      equal('the negotiated version', client.getNegotiatedProtocolVersion(), REVISION);
      succeeded(await client.call('chatty', {}));
      equal('the requests', asked.map(({ rpc }) => rpc), ['server/discover', 'tools/call']);
    });
  });
  await serve(['--era', 'legacy'], async ({ url }) => {
    await second(url, { mode: 'auto' }, async (client, asked) => {
      succeeded(await client.call('chatty', {}));
      holds(`expected a handshake, came ${short(asked)}`, asked.some(({ rpc }) => rpc === 'initialize'));
    });
  });
});

scenario('2.x, without negotiation, opens a session beside clients that have none', async () => {
  await serve([], async ({ url }) => {
    await second(url, PINNED, async (modern) => {
      await second(url, { mode: 'legacy' }, async (legacy, asked) => {
        const both = await Promise.all([modern, legacy].map((client) => client.call('progress', { steps: 2, step_ms: 100 })));
        both.forEach((result) => equal('the result', structured(succeeded(result)).steps, 2));
        holds('expected the calls to name a session', asked.at(-1).headers.has('mcp-session-id'));
      });
      succeeded(await modern.call('chatty', {}));
    });
  });
});

scenario('2.x cancels a call by closing its response, and the handler is cancelled', async () => {
  await serve([], async ({ url, outcomes }) => {
    await second(url, PINNED, async (client, asked) => {
      const controller = new AbortController();
      let seen = 0;
      const onprogress = () => ++seen === 2 && controller.abort('enough');
      const came = await client.call('countdown', { from: 50, step_ms: 150 }, { onprogress, signal: controller.signal }).catch((error) => error);
      holds(`expected the call to end as aborted, came ${short(came)}`, came instanceof two.SdkError);
      await until('the handler to be cancelled', () => outcomes().includes('cancelled'));
      equal('posted cancels', asked.filter(({ rpc }) => rpc === 'notifications/cancelled').length, 0);
      succeeded(await client.call('chatty', {}));
    });
  });
});

scenario('2.x gets errors as JSON-RPC has them, whatever the status', async () => {
  await serve([], async ({ url }) => {
    await second(url, PINNED, async (client) => {
      const unknown = await client.call('no_such_tool', {}).catch((error) => error);
      holds(`expected a JSON-RPC error, came ${short(unknown)}`, unknown instanceof two.ProtocolError);
      equal('the code for an unknown tool', unknown.code, -32602);
      const schema = two.fromJsonSchema({ type: 'object' });
      const removed = await client.request({ method: 'interop/unknown', params: {} }, schema).catch((error) => error);
      // The client parses the body of an error only if the status is 400.
      equal('the status for an unknown method', removed.status, 404);
      contains('the body', removed.data, '-32601');
      succeeded(await client.call('chatty', {}));
    });
  });
});

scenario('2.x subscribes to nothing that comes, which ends at once, and calls on', async () => {
  await serve([], async ({ url }) => {
    await second(url, PINNED, async (client) => {
      const subscription = await client.listen({ toolsListChanged: true });
      equal('what is honoured', subscription.honoredFilter, {});
      equal('the end of the subscription', await subscription.closed, 'graceful');
      succeeded(await client.call('chatty', {}));
    });
  });
});

/**
 * The number of answers in each request of a tool, after a check that each request has an id and a state of its own, and the first has
 * no state.
 */
function rounds(asked, tool) {
  const calls = asked.filter(({ rpc, params }) => rpc === 'tools/call' && params.name === tool);
  equal('the request ids', new Set(calls.map(({ id }) => id)).size, calls.length);
  equal('states of the first request', calls[0].params.requestState, undefined);
  equal('the states', new Set(calls.map(({ params }) => params.requestState)).size, calls.length);
  return calls.map(({ params }) => Object.keys(params.inputResponses ?? {}).length);
}

for (const [how, mode] of [['pinned', { pin: REVISION }], ['probing', 'auto']]) {
  scenario(`2.x, ${how}, answers what tools ask by calling them again, in up to three rounds, and posts nothing but requests`, async () => {
    await serve([], async ({ url }) => {
      await second(url, { mode, ...EVERYTHING }, async (client, asked) => {
        equal('after a yes', value(succeeded(await client.call('delete', { name: 'old.txt' }))), { deleted: 'old.txt' });
        const renamed = { from: 'old.txt', to: SURVEY.participant };
        equal('after a form', value(succeeded(await client.call('rename', { name: 'old.txt' }))), { renamed });
        equal('the survey', structured(succeeded(await client.call('survey', { topic: 'foxes' }))), { ...SURVEY, number: 1 });
        for (const [tool, answers] of [['delete', [0, 1]], ['rename', [0, 1]], ['survey', [0, 1, 1, 1]]]) {
          equal(`the answers in each request of ${tool}`, rounds(asked, tool), answers);
        }
        const posts = ['POST server/discover', ...Array(8).fill('POST tools/call')];
        equal('the requests', asked.map(({ method, rpc }) => `${method} ${rpc}`), posts);
      });
    });
  });
}

scenario('2.x: what is declined is not done, an undeclared capability is an error, and an aborted survey posts nothing more', async () => {
  await serve([], async ({ url }) => {
    for (const action of ['decline', 'cancel']) {
      await second(url, { ...PINNED, elicit: () => ({ action }) }, async (client) => {
        equal(`a deletion after ${action}`, value(succeeded(await client.call('delete', { name: 'old.txt' }))), { cancelled: true });
        equal(`a name after ${action}`, value(succeeded(await client.call('rename', { name: 'old.txt' }))), { cancelled: true });
      });
    }
    await second(url, PINNED, async (client) => {
      const came = await client.call('rename', { name: 'old.txt' }).catch((error) => error);
      holds(`expected a JSON-RPC error, came ${short(came)}`, came instanceof two.ProtocolError);
      equal('the error code', came.code, -32021);
      equal('what is missing', Object.keys(came.data.requiredCapabilities), ['elicitation']);
    });
    const controller = new AbortController();
    const elicit = (params) => (controller.abort('enough'), EVERYTHING.elicit(params));
    await second(url, { ...PINNED, ...EVERYTHING, elicit }, async (client, asked) => {
      const came = await client.call('survey', { topic: 'foxes' }, { signal: controller.signal }).catch((error) => error);
      holds(`expected the call to end as aborted, came ${short(came)}`, came instanceof two.SdkError);
      succeeded(await client.call('chatty', {}));
      equal('the requests', asked.map(({ rpc, params }) => params?.name ?? rpc), ['server/discover', 'survey', 'chatty']);
    });
  });
});

await run();
