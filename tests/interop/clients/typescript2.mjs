// The scenarios of the official TypeScript client, 2.x, with `tools` that are about the revision 2026-07-28, which has no handshake.

import { setTimeout as sleep } from 'node:timers/promises';
import { collector, DOWN, structured, succeeded, texts, toolError, UP, value } from './client.mjs';
import { connect2, EVERYTHING, sdk, SURVEY } from './client2.mjs';
import * as expected from './expected.mjs';
import { contains, equal, holds, run, scenario, short } from './scenario.mjs';

const { fromJsonSchema, LOG_LEVEL_META_KEY, ProtocolError, SdkError } = sdk('@modelcontextprotocol/client');

const REVISION = '2026-07-28';
const PINNED = { pin: REVISION };
const [MODERN, LEGACY] = [['--era', 'modern'], ['--era', 'legacy']];

/** Starts `tools` with these flags, passes the connected client to `use`, and closes the client. */
const tools = (flags, handlers, use) => connect2([process.env.TOOLS, ...flags], { mode: PINNED, ...handlers }, use);

const steps = (n) => Array.from({ length: n }, (_, i) => ({ progress: i + 1, total: n, message: `step ${i + 1}/${n}` }));
const methods = (client) => [...new Set(client.traffic.frames(UP).map(({ msg }) => msg.method))];

for (const [served, flags] of [['every era', []], ['the newest era alone', MODERN]]) {
  scenario(`pinned to ${REVISION} it lists what a server of ${served} offers and follows a call to its end, without a handshake`, async () => {
    await tools(flags, {}, async (client) => {
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

  scenario(`probing, it finds ${REVISION} at a server of ${served} and speaks it`, async () => {
    await tools(flags, { mode: 'auto' }, async (client) => {
      equal('the negotiated version', client.getNegotiatedProtocolVersion(), REVISION);
      equal('what the server offers', client.traffic.frames(DOWN)[0].msg.result.supportedVersions, [REVISION]);
      succeeded(await client.call('chatty', {}));
      equal('the methods on the wire', methods(client), ['server/discover', 'tools/call']);
    });
  });
}

for (const mode of [PINNED, 'legacy']) {
  scenario(`lists a tool of every kind of type that a tool can have (${mode.pin ?? mode})`, async () => {
    await connect2([process.env.TYPES], { mode }, async (client) => {
      const { tools } = await client.listTools();
      holds(`expected at least 40 tools, came ${tools.length}`, tools.length >= 40);
      equal('the result of tagged', succeeded(await client.call('tagged', { kind: 'Dot' })).structuredContent, { kind: 'Dot' });
    });
  });
}

scenario('probing, it falls back to the handshake where only the older revisions are served', async () => {
  await tools(LEGACY, { mode: 'auto' }, async (client) => {
    succeeded(await client.call('chatty', {}));
    equal('the methods on the wire', methods(client), ['server/discover', 'initialize', 'notifications/initialized', 'tools/call']);
    equal('the error code of server/discover', client.traffic.frames(DOWN)[0].msg.error?.code, -32601);
  });
});

scenario('pinned, it refuses a server that serves only the older revisions', async () => {
  const error = await tools(LEGACY, {}, async () => 'a connection').catch((error) => error);
  holds(`expected an error of the SDK, came ${short(error)}`, error instanceof SdkError);
});

scenario('without negotiation, it gets the versions in the refusal of --era modern, and its handshake from a server of every era', async () => {
  const error = await tools(MODERN, { mode: 'legacy' }, async () => 'a connection').catch((error) => error);
  equal('the error code of initialize', error.code, -32022);
  equal('what is served instead', error.data?.supported, [REVISION]);
  await tools([], { mode: 'legacy' }, async (client) => {
    succeeded(await client.call('chatty', {}));
    equal('the methods on the wire', methods(client), ['initialize', 'notifications/initialized', 'tools/call']);
  });
});

scenario('the workflow prompt reports its five steps and returns the exact text', async () => {
  await tools(MODERN, {}, async (client) => {
    const { updates, onprogress } = collector();
    const prompt = { name: 'analysis_workflow', arguments: { topic: 'wire formats', step_ms: '50' } };
    const { description, messages } = await client.getPrompt(prompt, { onprogress });
    equal('the prompt', { description, messages }, expected.workflow('wire formats'));
    equal('the updates handed to the callback', updates, expected.workflowUpdates());
  });
});

scenario('five calls at once each get their own updates and result', async () => {
  await tools([], {}, async (client) => {
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
  await tools(MODERN, {}, async (client) => {
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

scenario('an unknown tool is the JSON-RPC error -32602, a wrong argument a tool error, and the server answers the next call', async () => {
  await tools(MODERN, {}, async (client) => {
    const came = await client.call('no_such_tool', {}).catch((error) => error);
    holds(`expected a JSON-RPC error, came ${short(came)}`, came instanceof ProtocolError);
    equal('the error code', came.code, -32602);
    contains('a wrong type', toolError(await client.call('progress', { steps: 'many' })), 'steps');
    succeeded(await client.call('chatty', {}));
  });
});

scenario('an unknown method is the JSON-RPC error -32601', async () => {
  await tools([], {}, async (client) => {
    const came = await client.request({ method: 'interop/unknown', params: {} }, fromJsonSchema({ type: 'object' })).catch((error) => error);
    holds(`expected a JSON-RPC error, came ${short(came)}`, came instanceof ProtocolError);
    equal('the error code', came.code, -32601);
  });
});

scenario('the log level of a request decides whether a failing item is logged', async () => {
  const logs = [];
  await tools(MODERN, { onLog: (params) => logs.push(params) }, async (client) => {
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

scenario('a subscription to list changes that never come is acknowledged as nothing and ends at once with its result', async () => {
  await tools([], {}, async (client) => {
    const subscription = await client.listen({ toolsListChanged: true });
    const [listen] = client.traffic.frames(UP, 'subscriptions/listen');
    const [acknowledged] = client.traffic.frames(DOWN, 'notifications/subscriptions/acknowledged');
    equal('what is honoured', subscription.honoredFilter, {});
    equal('the subscription that is acknowledged', acknowledged.msg.params._meta['io.modelcontextprotocol/subscriptionId'], listen.msg.id);
    equal('the end of the subscription', await subscription.closed, 'graceful');
    equal('responses to the subscription', client.traffic.answers(listen).length, 1);
    succeeded(await client.call('chatty', {}));
    equal('the cancelled requests', client.traffic.frames(UP, 'notifications/cancelled'), []);
  });
});

// Input requests

/** Checks that each request of a call after the first answers the round that ended the request before it. */
function retried(traffic, calls) {
  calls.slice(1).forEach((later, i) => {
    const [{ msg }] = traffic.answers(calls[i]);
    equal('the type of the result before a retry', msg.result.resultType, 'input_required');
    const { requestState, inputResponses, ...rest } = later.msg.params;
    equal('the state of a retry', requestState, msg.result.requestState);
    equal('the answers of a retry', Object.keys(inputResponses ?? {}), Object.keys(msg.result.inputRequests ?? {}));
    equal('what is called again', [rest.name, rest.arguments], [calls[i].msg.params.name, calls[i].msg.params.arguments]);
  });
  equal('the request ids', new Set(calls.map(({ msg }) => msg.id)).size, calls.length);
}

for (const [how, mode] of [['pinned', PINNED], ['probing', 'auto']]) {
  scenario(`${how}, it answers for a model, confirms or declines, fills in a form and opens an address, in a round each`, async () => {
    const asked = [];
    const note = (answer) => (params) => {
      asked.push(params.url ?? params.message ?? params.messages[0].content.text);
      return answer(params);
    };
    const handlers = Object.fromEntries(Object.entries(EVERYTHING).map(([name, answer]) => [name, note(answer)]));
    await tools([], { mode, ...handlers }, async (client) => {
      equal('the summary', texts(succeeded(await client.call('summarise', { text: 'foxes' }))), [SURVEY.opinion]);
      equal('after a yes', value(succeeded(await client.call('delete', { name: 'old.txt' }))), { deleted: 'old.txt' });
      const renamed = { from: 'old.txt', to: SURVEY.participant };
      equal('after a form', value(succeeded(await client.call('rename', { name: 'old.txt' }))), { renamed });
      equal('after an address', value(succeeded(await client.call('connect', {}))), { decided: 'accept' });
      equal('how often it was asked', asked.length, 4);
      contains('what the model was asked', asked[0], 'foxes');
      equal('the address', asked[3], 'https://example.com/connect');
      const calls = client.traffic.frames(UP, 'tools/call');
      equal('the requests', calls.length, 8);
      for (let i = 0; i < calls.length; i += 2) retried(client.traffic, calls.slice(i, i + 2));
    });
    for (const action of ['decline', 'cancel']) {
      const no = () => ({ action });
      await tools([], { mode, elicit: no, open: no }, async (client) => {
        equal(`a deletion after ${action}`, value(succeeded(await client.call('delete', { name: 'old.txt' }))), { cancelled: true });
        equal(`a name after ${action}`, value(succeeded(await client.call('rename', { name: 'old.txt' }))), { cancelled: true });
        equal(`an address after ${action}`, value(succeeded(await client.call('connect', {}))), { decided: action });
      });
    }
  });

  scenario(`${how}, it answers a survey in three rounds, which has its effect once and reports each step once`, async () => {
    await tools([], { mode, ...EVERYTHING }, async (client) => {
      for (const number of [1, 2]) {
        const { updates, onprogress } = collector();
        const before = client.traffic.frames(UP, 'tools/call').length;
        const result = await client.call('survey', { topic: 'foxes' }, { onprogress });
        equal('the result', structured(succeeded(result)), { ...SURVEY, number });
        const calls = client.traffic.frames(UP, 'tools/call').slice(before);
        equal('the requests of the call', calls.length, 4);
        retried(client.traffic, calls);
        const progress = calls.map((call) => client.traffic.progress(call).map(({ msg }) => msg.params.progress));
        equal('the updates of each request on the wire', progress, [[0], [1], [2], [3]]);
        equal('the updates of the SDK itself', updates.filter(({ message }) => message).map(({ progress }) => progress), [1, 2, 3]);
      }
    });
  });
}

scenario('a client that declares nothing, or only forms, gets an error that names the missing capability', async () => {
  const missing = async (client, ...call) => {
    const came = await client.call(...call).catch((error) => error);
    holds(`expected a JSON-RPC error, came ${short(came)}`, came instanceof ProtocolError);
    equal('the error code', came.code, -32021);
    return came.data.requiredCapabilities;
  };
  await tools([], {}, async (client) => {
    equal('for a summary', await missing(client, 'summarise', { text: 'foxes' }), { sampling: {} });
    equal('for a form', Object.keys(await missing(client, 'rename', { name: 'old.txt' })), ['elicitation']);
    equal('a deletion', value(succeeded(await client.call('delete', { name: 'old.txt' }))), { cancelled: true });
  });
  await tools([], { elicit: EVERYTHING.elicit }, async (client) => {
    equal('for an address', await missing(client, 'connect', {}), { elicitation: { url: {} } });
  });
});

scenario('a call that is aborted between two rounds leaves nothing on the wire, and the server answers the next call', async () => {
  const controller = new AbortController();
  const elicit = async (params) => {
    controller.abort('enough');
    return EVERYTHING.elicit(params);
  };
  await tools([], { ...EVERYTHING, elicit }, async (client) => {
    const came = await client.call('survey', { topic: 'foxes' }, { signal: controller.signal }).catch((error) => error);
    holds(`expected the call to end as aborted, came ${short(came)}`, came instanceof SdkError);
    succeeded(await client.call('progress', { steps: 2, step_ms: 50 }));
    equal('the calls on the wire', client.traffic.frames(UP, 'tools/call').map(({ msg }) => msg.params.name), ['survey', 'progress']);
    equal('the cancels on the wire', client.traffic.frames(UP, 'notifications/cancelled'), []);
  });
});

scenario('a model that fails ends the call at the client, and the server answers the next call', async () => {
  const sample = () => {
    throw new Error('no luck today');
  };
  await tools([], { sample }, async (client) => {
    const came = await client.call('summarise', { text: 'foxes' }).catch((error) => error);
    contains('the error', String(came), 'no luck today');
    succeeded(await client.call('chatty', {}));
    equal('the calls on the wire', client.traffic.frames(UP, 'tools/call').map(({ msg }) => msg.params.name), ['summarise', 'chatty']);
  });
});

scenario('five surveys at once are asked and answered apart', async () => {
  const sample = ({ messages }) => messages[0].content.text;
  await tools([], { ...EVERYTHING, sample }, async (client) => {
    const topics = ['one', 'two', 'three', 'four', 'five'];
    const results = await Promise.all(topics.map((topic) => client.call('survey', { topic })));
    topics.forEach((topic, i) => contains(`the opinion on ${topic}`, structured(succeeded(results[i])).opinion, topic));
    equal('the numbers', results.map((result) => structured(result).number).sort(), [1, 2, 3, 4, 5]);
  });
});

scenario('a client of the handshake is asked by requests, as before', async () => {
  await tools([], { ...EVERYTHING, mode: 'legacy' }, async (client) => {
    equal('the survey', structured(succeeded(await client.call('survey', { topic: 'foxes' }))), { ...SURVEY, number: 1 });
    equal('the calls on the wire', client.traffic.frames(UP, 'tools/call').length, 1);
    equal('the elicitations on the wire', client.traffic.frames(DOWN, 'elicitation/create').length, 2);
  });
});

scenario('the server exits by itself when its input ends, after a subscription or without', async () => {
  for (const listening of [false, true]) {
    const traffic = await tools(MODERN, {}, async (client) => {
      if (listening) await client.listen({ toolsListChanged: true });
      succeeded(await client.call('chatty', {}));
      return client.traffic;
    });
    equal('the exit status', traffic.entries().find(({ ev }) => ev === 'exit')?.code, 0);
  }
});

await run();
