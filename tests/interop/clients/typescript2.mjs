// What the official TypeScript client, 2.x, and `tools` must do together in the revision 2026-07-28, which has no handshake.

import { mkdtempSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { CLIENT, collector, DOWN, structured, succeeded, toolError, Traffic, UP, value } from './client.mjs';
import * as expected from './expected.mjs';
import { contains, equal, holds, run, scenario, short } from './scenario.mjs';

const sdk = createRequire(join(process.env.DEPS, 'node', 'package.json'));
const { Client, fromJsonSchema, LOG_LEVEL_META_KEY, ProtocolError, SdkError } = sdk('@modelcontextprotocol/client');
const { StdioClientTransport } = sdk('@modelcontextprotocol/client/stdio');

const TAP = fileURLToPath(new URL('../tap.py', import.meta.url));
const REVISION = '2026-07-28';
const PINNED = { pin: REVISION };
const logs = mkdtempSync(join(tmpdir(), 'interop-'));
let sessions = 0;

/** Starts `tools --era ERA` with a tap on the pipe, lets `use` talk to it, and closes it. */
async function tools(era, { mode = PINNED, elicit, onLog } = {}, use) {
  const log = join(logs, `${sessions++}.jsonl`);
  const capabilities = elicit ? { elicitation: {} } : {};
  const client = new Client(CLIENT, { capabilities, versionNegotiation: { mode } });
  if (elicit) client.setRequestHandler('elicitation/create', elicit);
  if (onLog) client.setNotificationHandler('notifications/message', ({ params }) => onLog(params));
  client.call = (name, args, options, meta) => client.callTool({ name, arguments: args, ...(meta && { _meta: meta }) }, options);
  client.traffic = new Traffic(log);
  const command = [process.env.TOOLS, '--era', era];
  await client.connect(new StdioClientTransport({ command: process.env.PYTHON, args: ['-I', TAP, log, '--', ...command] }));
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}

const steps = (n) => Array.from({ length: n }, (_, i) => ({ progress: i + 1, total: n, message: `step ${i + 1}/${n}` }));
const methods = (client) => [...new Set(client.traffic.frames(UP).map(({ msg }) => msg.method))];

for (const era of ['auto', 'modern']) {
  scenario(`pinned to ${REVISION} it lists what --era ${era} serves and follows a call to its end, without a handshake`, async () => {
    await tools(era, {}, async (client) => {
      equal('the names of the tools, sorted', (await client.listTools()).tools.map(({ name }) => name).sort(), expected.TOOLS);
      equal('the prompts', (await client.listPrompts()).prompts.map(({ name }) => name), ['analysis_workflow']);
      const { updates, onprogress } = collector();
      const result = await client.call('progress', { steps: 3, step_ms: 40 }, { onprogress });
      equal('the result', structured(succeeded(result)), { steps: 3, notified: true, done: true });
      equal('the updates on the wire', client.traffic.updates('tools/call'), steps(3));
      equal('the updates handed to the callback', updates, steps(3));
      equal('the methods on the wire', methods(client), ['server/discover', 'tools/list', 'prompts/list', 'tools/call']);
    });
  });

  scenario(`probing, it finds ${REVISION} at --era ${era} and speaks it`, async () => {
    await tools(era, { mode: 'auto' }, async (client) => {
      equal('the negotiated version', client.getNegotiatedProtocolVersion(), REVISION);
      equal('what the server offers', client.traffic.frames(DOWN)[0].msg.result.supportedVersions, [REVISION]);
      succeeded(await client.call('chatty', {}));
      equal('the methods on the wire', methods(client), ['server/discover', 'tools/call']);
    });
  });
}

scenario('probing, it falls back to the handshake where only the older revisions are served', async () => {
  await tools('legacy', { mode: 'auto' }, async (client) => {
    succeeded(await client.call('chatty', {}));
    equal('the methods on the wire', methods(client), ['server/discover', 'initialize', 'notifications/initialized', 'tools/call']);
    equal('the error code of server/discover', client.traffic.frames(DOWN)[0].msg.error?.code, -32601);
  });
});

scenario('pinned, it refuses a server that serves only the older revisions', async () => {
  const error = await tools('legacy', {}, async () => 'a connection').catch((error) => error);
  holds(`expected an error of the SDK, came ${short(error)}`, error instanceof SdkError);
});

scenario('without negotiation, it gets the versions in the refusal of --era modern, and its handshake at --era auto', async () => {
  const error = await tools('modern', { mode: 'legacy' }, async () => 'a connection').catch((error) => error);
  equal('the error code of initialize', error.code, -32022);
  equal('what is served instead', error.data?.supported, [REVISION]);
  await tools('auto', { mode: 'legacy' }, async (client) => {
    succeeded(await client.call('chatty', {}));
    equal('the methods on the wire', methods(client), ['initialize', 'notifications/initialized', 'tools/call']);
  });
});

scenario('the workflow prompt reports its five steps and returns the exact text', async () => {
  await tools('modern', {}, async (client) => {
    const { updates, onprogress } = collector();
    const prompt = { name: 'analysis_workflow', arguments: { topic: 'wire formats', step_ms: '50' } };
    const { description, messages } = await client.getPrompt(prompt, { onprogress });
    equal('the prompt', { description, messages }, expected.workflow('wire formats'));
    equal('the updates handed to the callback', updates, expected.workflowUpdates());
  });
});

scenario('five calls at once each get their own updates and result', async () => {
  await tools('auto', {}, async (client) => {
    const collectors = Array.from({ length: 5 }, collector);
    const calls = collectors.map(({ onprogress }, i) => client.call('progress', { steps: i + 1, step_ms: 30 }, { onprogress }));
    const results = await Promise.all(calls);
    results.forEach((result, i) => {
      equal(`the result of call ${i}`, structured(result).steps, i + 1);
      equal(`the updates of call ${i}`, collectors[i].updates, steps(i + 1));
    });
  });
});

scenario('a cancelled countdown is not answered, and the server answers the next call', async () => {
  await tools('modern', {}, async (client) => {
    const controller = new AbortController();
    let seen = 0;
    const onprogress = () => {
      if (++seen === 3) controller.abort('enough');
    };
    const came = await client.call('countdown', { from: 50, step_ms: 150 }, { onprogress, signal: controller.signal }).catch((error) => error);
    holds(`expected the call to end as aborted, came ${short(came)}`, came instanceof SdkError);
    // Long enough for four more steps of the countdown.
    succeeded(await client.call('progress', { steps: 3, step_ms: 200 }));

    const [call] = client.traffic.frames(UP, 'tools/call');
    const cancels = client.traffic.frames(UP, 'notifications/cancelled');
    equal('the cancelled requests', cancels.map(({ msg }) => msg.params.requestId), [call.msg.id]);
    equal('responses to the cancelled call', client.traffic.answers(call), []);
    const late = client.traffic.progress(call).filter(({ at }) => at > cancels[0].at);
    holds(`expected at most one update that crossed the cancel, came ${short(late)}`, late.length <= 1);
  });
});

scenario('an unknown tool is the JSON-RPC error -32602, a wrong argument a tool error, and the server lives on', async () => {
  await tools('modern', {}, async (client) => {
    const came = await client.call('no_such_tool', {}).catch((error) => error);
    holds(`expected a JSON-RPC error, came ${short(came)}`, came instanceof ProtocolError);
    equal('the error code', came.code, -32602);
    contains('a wrong type', toolError(await client.call('progress', { steps: 'many' })), 'steps');
    succeeded(await client.call('chatty', {}));
  });
});

scenario('an unknown method is the JSON-RPC error -32601', async () => {
  await tools('auto', {}, async (client) => {
    const came = await client.request({ method: 'interop/unknown', params: {} }, fromJsonSchema({ type: 'object' })).catch((error) => error);
    holds(`expected a JSON-RPC error, came ${short(came)}`, came instanceof ProtocolError);
    equal('the error code', came.code, -32601);
  });
});

scenario('the log level of a request decides whether a failing item is logged', async () => {
  const logs = [];
  await tools('modern', { onLog: (params) => logs.push(params) }, async (client) => {
    const bulk = (item, level) =>
      client.call('bulk', { items: [item], fail: [item], step_ms: 10 }, undefined, level && { [LOG_LEVEL_META_KEY]: level });
    await bulk('silent');
    await bulk('quiet', 'error');
    equal('log messages without a level, and at level error', client.traffic.frames(DOWN, 'notifications/message'), []);
    await bulk('loud', 'warning');
    const frames = client.traffic.frames(DOWN, 'notifications/message');
    equal('the levels of the log messages on the wire', frames.map(({ msg }) => msg.params.level), ['warning']);
    contains('the log message on the wire', frames[0].msg.params.data, '"item":"loud"');
    for (let turns = 0; turns < 100 && !logs.length; turns++) await sleep(10);
    equal('the log messages handed to the callback', logs.map((log) => log.level), ['warning']);
  });
});

scenario('a subscription to list changes is acknowledged as nothing, stays open beside calls, and ends with its cancel', async () => {
  await tools('auto', {}, async (client) => {
    const subscription = await client.listen({ toolsListChanged: true });
    const [listen] = client.traffic.frames(UP, 'subscriptions/listen');
    const [acknowledged] = client.traffic.frames(DOWN, 'notifications/subscriptions/acknowledged');
    equal('what is honoured', subscription.honoredFilter, {});
    equal('the subscription that is acknowledged', acknowledged.msg.params._meta['io.modelcontextprotocol/subscriptionId'], listen.msg.id);
    succeeded(await client.call('chatty', {}));
    equal('responses to the open subscription', client.traffic.answers(listen), []);
    await subscription.close();
    equal('the end of the subscription', await subscription.closed, 'local');
    succeeded(await client.call('chatty', {}));
    const cancels = client.traffic.frames(UP, 'notifications/cancelled');
    equal('the cancelled requests', cancels.map(({ msg }) => msg.params.requestId), [listen.msg.id]);
  });
});

scenario('a tool that would ask is told that there is nobody to ask', async () => {
  let asked = 0;
  const elicit = () => {
    asked++;
    return { action: 'accept', content: {} };
  };
  await tools('modern', { elicit }, async (client) => {
    equal('the result', value(succeeded(await client.call('delete', { name: 'old.txt' }))), { cancelled: true });
    equal('how often the user was asked', asked, 0);
    contains('the tool error', toolError(await client.call('rename', { name: 'old.txt' })), 'elicitation');
  });
});

scenario('the server leaves by itself when its input ends, a subscription open or not', async () => {
  for (const listening of [false, true]) {
    const traffic = await tools('modern', {}, async (client) => {
      if (listening) await client.listen({ toolsListChanged: true });
      succeeded(await client.call('chatty', {}));
      return client.traffic;
    });
    equal('the exit status', traffic.entries().find(({ ev }) => ev === 'exit')?.code, 0);
  }
});

await run();
