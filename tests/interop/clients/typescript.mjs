// The scenarios of the official TypeScript client, 1.x, with `tools`. Most are those of scenarios.py.
//
// This SDK drops progress that it reads together with the result. `countdown` reports right before its result, so its updates are checked
// in the recorded frames. `progress` and the prompt sleep after each report, so with these the callback must get every update.

import { setTimeout as sleep } from 'node:timers/promises';
import { CLIENT, collector, connect, DOWN, listTools, pages, structured, succeeded, texts, toolError, types, UP, value } from './client.mjs';
import * as expected from './expected.mjs';
import { contains, equal, holds, run, sameBytes, scenario, short, within } from './scenario.mjs';

/** Starts `tools`, passes the connected client to `use`, and closes the client. */
const tools = ({ flags = [], ...abilities }, use) => connect([process.env.TOOLS, ...flags], abilities, use);

const steps = (n) => Array.from({ length: n }, (_, i) => ({ progress: i + 1, total: n, message: `step ${i + 1}/${n}` }));

// Listing

scenario('lists the tools, in the same order every time', async () => {
  const orders = [];
  for (let session = 0; session < 2; session++) {
    await tools({}, async (client) => {
      for (let list = 0; list < 2; list++) orders.push((await listTools(client)).map((tool) => tool.name));
    });
  }
  equal('the names of the tools, sorted', [...orders[0]].sort(), expected.TOOLS);
  for (const order of orders.slice(1)) equal('the order of a later list', order, orders[0]);
});

scenario('describes every tool, and marks those that only read', async () => {
  await tools({}, async (client) => {
    for (const { name, description, inputSchema, annotations } of await listTools(client)) {
      equal(`the type of the input schema of ${name}`, inputSchema.type, 'object');
      holds(`expected a description of ${name}, came none`, description);
      equal(`readOnlyHint of ${name}`, annotations?.readOnlyHint ?? false, expected.READ_ONLY.includes(name));
    }
  });
});

scenario('the output schemas compile without a warning, and the results fit them', async () => {
  const warnings = [];
  const { warn } = console;
  console.warn = (...words) => warnings.push(words.join(' '));
  try {
    await tools({}, async (client) => {
      // From here on the client checks every result against the schema that was listed.
      await listTools(client);
      succeeded(await client.call('progress', { steps: 1, step_ms: 1 }));
      succeeded(await client.call('countdown', { from: 0 }));
      succeeded(await client.call('bulk', { items: ['a', 'b'], fail: ['b'] }));
      succeeded(await client.call('delete', { name: 'old.txt' }));
      succeeded(await client.call('whoami', {}));
    });
  } finally {
    console.warn = warn;
  }
  equal('the warnings of the schema compiler', warnings, []);
});

// In the field: one tool whose schema was not that of an object, or whose field may be anything, made this client refuse the whole list.
scenario('lists and calls a tool of every kind of type that a tool can have', async () => {
  const area = { number: 7, any: [1], nested: { number: 8, list: [1, null] } };
  await connect([process.env.TYPES], {}, async (client) => {
    const tools = await listTools(client);
    holds(`expected at least 40 tools, came ${tools.length}`, tools.length >= 40);
    for (const { name, inputSchema, outputSchema } of tools) {
      equal(`the type of the input schema of ${name}`, inputSchema.type, 'object');
      equal(`the type of the output schema of ${name}`, outputSchema?.type ?? 'object', 'object');
    }
    // From here on the client checks every result against the schema that was listed.
    const returned = async (name, args) => succeeded(await client.call(name, args)).structuredContent;
    const { number, any, nested } = await returned('fields', area);
    equal('the fields', { number, any, nested: { number: nested.number, list: nested.list } }, area);
    equal('the result of a-term', await returned('a-term', {}), { result: { Next: 'Zero' } });
    for (const [name, value] of [
      ['outside', { Area: { width: 2 } }],
      ['tagged', { kind: 'Line', length: 2 }],
      ['beside', { kind: 'Line', value: 2 }],
      ['untagged', { length: 2 }],
      ['wrapper', { kind: 'Dot' }],
      ['flattened', { size: 1, kind: 'Line', length: 2, more: null }],
      ['closed', { firstName: 'Ada', lastName: '' }],
      ['tree', { below: [{ below: [] }] }],
      ['root', { below: [{ below: [] }] }],
      ['table', { a: 1 }],
      ['any', { a: [1] }],
      ['raw', { a: 1, b: true }],
    ]) {
      equal(`the result of ${name}`, await returned(name, value), value);
      if (name !== 'raw' && name !== 'any') {
        equal(`the result of option-of-${name}`, await returned(`option-of-${name}`, value), { result: value });
        equal(`the result of option-of-${name} without arguments`, await returned(`option-of-${name}`, undefined), { result: null });
      }
    }
  });
});

scenario('lists the workflow prompt with its arguments', async () => {
  await tools({}, async (client) => {
    const prompts = await pages((params) => client.listPrompts(params), 'prompts');
    equal('the prompts', prompts.map((prompt) => prompt.name), ['analysis_workflow']);
    equal('the arguments of analysis_workflow, sorted', prompts[0].arguments.map((argument) => argument.name).sort(), ['step_ms', 'topic']);
  });
});

// Progress

scenario('progress with a token: every update, in order, all before the result', async () => {
  await tools({}, async (client) => {
    const { updates, onprogress } = collector();
    const result = await client.call('progress', { steps: 5, step_ms: 40 }, { onprogress });
    equal('the result', structured(succeeded(result)), { steps: 5, notified: true, done: true });
    equal('the updates on the wire', client.traffic.updates('tools/call'), steps(5));
    equal('the updates handed to the callback', updates, steps(5));
  });
});

scenario('progress without a token: no updates, and the result says so', async () => {
  await tools({}, async (client) => {
    const result = await client.call('progress', { steps: 3, step_ms: 20 });
    equal('the result', structured(succeeded(result)), { steps: 3, notified: false, done: true });
    equal('progress notifications on the wire', client.traffic.frames(DOWN, 'notifications/progress'), []);
  });
});

scenario('progress arrives as it happens: ten steps 500 ms apart arrive 500 ms apart', async () => {
  await tools({}, async (client) => {
    const { times, onprogress } = collector();
    const start = performance.now();
    await client.call('progress', { steps: 10, step_ms: 500 }, { onprogress });
    const end = performance.now();
    equal('the number of updates', times.length, 10);
    within('milliseconds until the first update', times[0] - start, 0, 350);
    times.forEach((time, i) => within(`milliseconds from update ${i + 1} to what follows it`, (times[i + 1] ?? end) - time, 350, 750));
  });
});

scenario('five calls at once each get their own updates and result', async () => {
  await tools({}, async (client) => {
    const collectors = Array.from({ length: 5 }, collector);
    const calls = collectors.map(({ onprogress }, i) => client.call('progress', { steps: i + 1, step_ms: 30 }, { onprogress }));
    const results = await Promise.all(calls);
    results.forEach((result, i) => {
      equal(`the result of call ${i}`, structured(result).steps, i + 1);
      equal(`the updates of call ${i}`, collectors[i].updates, steps(i + 1));
    });
  });
});

scenario('countdown reports from 0 to the end', async () => {
  await tools({}, async (client) => {
    for (const from of [3, 0]) {
      const result = await client.call('countdown', { from, step_ms: 100 }, collector());
      equal('the result', structured(succeeded(result)), { result: 'Countdown completed successfully', from });
      equal('the updates on the wire', client.traffic.updates('tools/call'), expected.countdown(from));
    }
  });
});

scenario('the workflow prompt reports its five steps and returns the exact text', async () => {
  await tools({}, async (client) => {
    for (const [args, topic] of [[{ topic: 'wire formats' }, 'wire formats'], [{}, 'general analysis']]) {
      const { updates, onprogress } = collector();
      const { description, messages } = await client.getPrompt({ name: 'analysis_workflow', arguments: { ...args, step_ms: '50' } }, { onprogress });
      equal('the prompt', { description, messages }, expected.workflow(topic));
      equal('the updates on the wire', client.traffic.updates('prompts/get'), expected.workflowUpdates());
      equal('the updates handed to the callback', updates, expected.workflowUpdates());
    }
  });
});

// Output

scenario('long_output is right to the byte, small and large', async () => {
  await tools({}, async (client) => {
    for (const [args, blocks, chars] of [[{}, 3, 256], [{ blocks: 50, chars: 65536 }, 50, 65536], [{ blocks: 12, chars: 5 }, 12, 5]]) {
      const came = texts(succeeded(await client.call('long_output', args)));
      equal('the number of blocks', came.length, blocks);
      expected.longOutput(blocks, chars).forEach((text, i) => sameBytes(`block ${i} of ${chars} bytes`, came[i], text));
    }
  });
});

scenario('chatty is right to the byte, accents too', async () => {
  await tools({}, async (client) => {
    const came = texts(succeeded(await client.call('chatty', {})));
    equal('the number of blocks', came.length, 4);
    expected.CHATTY.forEach((text, i) => sameBytes(`block ${i}`, came[i], text));
  });
});

scenario('bulk tells what was done and what failed', async () => {
  await tools({}, async (client) => {
    const { errors, ...came } = structured(succeeded(await client.call('bulk', { items: ['a', 'b', 'c'], fail: ['b'], step_ms: 10 })));
    equal('the result without its errors', came, {
      status: 'complete',
      total: 3,
      processed: 2,
      failed: 1,
      remaining: 0,
      results: [
        { id: 'a', status: 'ok' },
        { id: 'c', status: 'ok' },
      ],
    });
    equal('the items in errors', errors?.map((error) => error.id), ['b']);
    holds(`expected a reason for the failure, came ${short(errors)}`, typeof errors[0].error === 'string' && errors[0].error);
    const whole = structured(succeeded(await client.call('bulk', { items: ['a'], step_ms: 10 })));
    equal('errors, when nothing failed', whole.errors, undefined);
  });
});

scenario('whoami returns who the client says it is and what it can do', async () => {
  await tools({ sample: () => 'unused' }, async (client) => {
    const came = value(succeeded(await client.call('whoami', {})));
    equal('the members', Object.keys(came).sort(), ['agent', 'capabilities', 'client']);
    equal('the client', { name: came.client.name, version: came.client.version }, CLIENT);
    equal('the capabilities', [Boolean(came.capabilities.sampling), Boolean(came.capabilities.elicitation)], [true, false]);
  });
});

// Bad input

scenario('a wrong argument is a tool error that names it', async () => {
  await tools({}, async (client) => {
    contains('a wrong type', toolError(await client.call('progress', { steps: 'many' })), 'steps');
    contains('an unknown argument', toolError(await client.call('chatty', { surprise: 1 })), 'surprise');
    contains('a missing argument', toolError(await client.call('delete', {})), 'name');
  });
});

scenario('an unknown tool is the JSON-RPC error -32602, and the server answers the next call', async () => {
  await tools({}, async (client) => {
    const came = await client.call('no_such_tool', {}).catch((error) => error);
    holds(`expected a JSON-RPC error, came ${short(came)}`, came instanceof types.McpError);
    equal('the error code', came.code, -32602);
    succeeded(await client.call('chatty', {}));
  });
});

// Endings

scenario('a cancelled countdown is not answered, and the server answers the next call', async () => {
  await tools({}, async (client) => {
    const controller = new AbortController();
    let seen = 0;
    const onprogress = () => {
      if (++seen === 3) controller.abort('enough');
    };
    const came = await client.call('countdown', { from: 50, step_ms: 150 }, { onprogress, signal: controller.signal }).catch((error) => error);
    holds(`expected the call to end as aborted, came ${short(came)}`, came instanceof types.McpError);
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

scenario('a stuck tool is answered at the deadline, and the server answers the next call', async () => {
  await tools({ flags: ['--deadline', '1'] }, async (client) => {
    const start = performance.now();
    toolError(await client.call('stuck', {}));
    within('milliseconds until the tool error', performance.now() - start, 900, 2000);
    succeeded(await client.call('chatty', {}));
  });
});

scenario('bulk, cut by the deadline, still tells what was done', async () => {
  await tools({ flags: ['--deadline', '0.5'] }, async (client) => {
    const items = Array.from({ length: 100 }, (_, i) => String(i));
    const { status, processed, remaining, results } = structured(succeeded(await client.call('bulk', { items, step_ms: 50 })));
    equal('the status', status, 'timeout');
    within('the items that were processed', processed, 1, 20);
    equal('the results', results, items.slice(0, processed).map((id) => ({ id, status: 'ok' })));
    equal('what remains', remaining, 100 - processed);
  });
});

scenario('the server exits by itself when its input ends', async () => {
  const traffic = await tools({}, async (client) => {
    succeeded(await client.call('chatty', {}));
    return client.traffic;
  });
  const closed = traffic.entries().find(({ ev }) => ev === 'end');
  const exit = traffic.entries().find(({ ev }) => ev === 'exit');
  equal('the exit status', exit?.code, 0);
  within('milliseconds from the end of input to the exit', exit.ms - closed.ms, 0, 1000);
});

// Sampling, confirmation, elicitation, logging

scenario("summarise returns what the client's model said", async () => {
  const asked = [];
  const sample = (params) => {
    asked.push(params);
    return 'In short: two foxes.';
  };
  await tools({ sample }, async (client) => {
    const result = succeeded(await client.call('summarise', { text: 'Once there were two foxes.' }));
    equal('the text', texts(result), ['In short: two foxes.']);
    equal('how often the model was asked', asked.length, 1);
    contains('what the model was asked', asked[0].messages, 'Once there were two foxes.');
    equal('maxTokens', asked[0].maxTokens, 400);
  });
});

scenario('summarise is a clear tool error when the client has no model', async () => {
  await tools({}, async (client) => {
    contains('the tool error', toolError(await client.call('summarise', { text: 'x' })), 'sampling');
    equal('sampling requests on the wire', client.traffic.frames(DOWN, 'sampling/createMessage'), []);
  });
});

scenario('delete deletes when it is confirmed, and only then', async () => {
  for (const [answer, outcome] of [
    [{ action: 'accept' }, { deleted: 'old.txt' }], // some clients leave the content out where the form is empty
    [{ action: 'decline' }, { cancelled: true }],
    [{ action: 'cancel' }, { cancelled: true }],
  ]) {
    const asked = [];
    const elicit = (params) => {
      asked.push(params.message);
      return answer;
    };
    await tools({ elicit }, async (client) => {
      equal(`the result after ${answer.action}`, value(succeeded(await client.call('delete', { name: 'old.txt' }))), outcome);
      equal('how often the user was asked', asked.length, 1);
      contains('what the user was asked', asked[0], 'old.txt');
    });
  }
});

scenario('delete without a user to ask deletes nothing', async () => {
  await tools({}, async (client) => {
    equal('the result', value(succeeded(await client.call('delete', { name: 'old.txt' }))), { cancelled: true });
    equal('elicitations on the wire', client.traffic.frames(DOWN, 'elicitation/create'), []);
  });
});

scenario('rename takes the name the user gives, and none when there is none', async () => {
  for (const [answer, outcome] of [
    [{ action: 'accept', content: { newName: 'new.txt' } }, { renamed: { from: 'old.txt', to: 'new.txt' } }],
    [{ action: 'decline' }, { cancelled: true }],
    [{ action: 'cancel' }, { cancelled: true }],
  ]) {
    const asked = [];
    const elicit = (params) => {
      asked.push(params.requestedSchema);
      return answer;
    };
    await tools({ elicit }, async (client) => {
      equal(`the result after ${answer.action}`, value(succeeded(await client.call('rename', { name: 'old.txt' }))), outcome);
      equal('how often the user was asked', asked.length, 1);
      const { type, minLength } = asked[0].properties.newName;
      equal('the schema of newName', { type, minLength }, { type: 'string', minLength: 1 });
      equal('what is required', asked[0].required, ['newName']);
    });
  }
});

scenario('rename is a clear tool error when there is no user to ask', async () => {
  await tools({}, async (client) => {
    contains('the tool error', toolError(await client.call('rename', { name: 'old.txt' })), 'elicitation');
  });
});

scenario('connect has the user open an address, and tells when it is done', async () => {
  for (const action of ['accept', 'decline', 'cancel']) {
    const [asked, opened] = [[], []];
    const open = (params) => {
      asked.push(params);
      return { action };
    };
    await tools({ open, onOpened: ({ elicitationId }) => opened.push(elicitationId) }, async (client) => {
      const args = { url: 'https://login.example.com/a?b=c' };
      equal('the result', value(succeeded(await client.call('connect', args))), { decided: action });
      equal('how often the user was asked', asked.length, 1);
      equal('the address', asked[0].url, args.url);
      holds('expected an id, came none', asked[0].elicitationId);
      equal('what is done', opened, action === 'accept' ? [asked[0].elicitationId] : []);
      contains('a form', toolError(await client.call('rename', { name: 'old.txt' })), 'elicitation');
    });
  }
});

scenario('connect may want its address opened first, and is a clear tool error where nobody opens any', async () => {
  await tools({ open: () => ({ action: 'cancel' }) }, async (client) => {
    const error = await client.call('connect', { require: true }).then(short, (error) => error);
    holds(`expected the error of the SDK, came ${short(error)}`, error instanceof types.UrlElicitationRequiredError);
    equal('the addresses', error.elicitations.map(({ mode, url }) => [mode, url]), [['url', 'https://example.com/connect']]);
  });
  await tools({ elicit: () => ({ action: 'cancel' }) }, async (client) => {
    for (const args of [{}, { require: true }]) {
      contains('the tool error', toolError(await client.call('connect', args)), 'elicitation by URL');
    }
  });
});

scenario('the log level decides whether a failing item is logged', async () => {
  const logs = [];
  await tools({ onLog: (params) => logs.push(params) }, async (client) => {
    await client.setLoggingLevel('error');
    await client.call('bulk', { items: ['quiet'], fail: ['quiet'], step_ms: 10 });
    equal('log messages at level error', client.traffic.frames(DOWN, 'notifications/message'), []);

    await client.setLoggingLevel('warning');
    await client.call('bulk', { items: ['loud'], fail: ['loud'], step_ms: 10 });
    const frames = client.traffic.frames(DOWN, 'notifications/message');
    equal('the levels of the log messages on the wire', frames.map(({ msg }) => msg.params.level), ['warning']);
    contains('the log message on the wire', frames[0].msg.params.data, '"item":"loud"');
    for (let turns = 0; turns < 100 && !logs.length; turns++) await sleep(10);
    equal('the log messages handed to the callback', logs.map((log) => log.level), ['warning']);
  });
});

await run();
