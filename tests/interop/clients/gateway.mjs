// The scenarios of the official TypeScript client, 1.x, with `gateway` and the app `tools --tesseron`: two hops, over real sockets.

import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect as dial, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { collector, connect, DOWN, listTools, pages, succeeded, texts, toolError, types, UP, value } from './client.mjs';
import { connect2 } from './client2.mjs';
import * as expected from './expected.mjs';
import { contains, equal, holds, run, sameBytes, scenario, short, within } from './scenario.mjs';

const OWN = ['claim_session', 'list_actions', 'invoke_action', 'read_resource', 'list_pending_claims'].map((name) => `tesseron__${name}`);
const PATIENCE = 10_000; // milliseconds

/** Makes a home directory in the temporary folder of this client, which `runner.py` removes. */
function makeHome() {
  const home = mkdtempSync(join(tmpdir(), 'h-'));
  mkdirSync(join(home, '.tesseron', 'instances'), { recursive: true, mode: 0o700 });
  return home;
}

const instances = (home) => join(home, '.tesseron', 'instances');

/** Waits until `look` returns a value, and returns the value. */
async function eventually(what, look) {
  for (const start = Date.now(); ; await sleep(10)) {
    const seen = look();
    if (seen) return seen;
    holds(`expected ${what} within ${PATIENCE} ms`, Date.now() - start < PATIENCE);
  }
}

/** The app `tools`. */
class App {
  constructor(home, flags = []) {
    this.audit = join(home, `audit-${Math.random()}`);
    this.errorLines = [];
    const options = ['--tesseron', '--home', home, '--audit', this.audit, ...flags];
    this.process = spawn(process.env.TOOLS, options, { stdio: ['ignore', 'ignore', 'pipe'] });
    createInterface(this.process.stderr).on('line', (line) => this.errorLines.push(line));
  }

  /** The claim codes that the app has shown. */
  codes() {
    return this.errorLines.filter((line) => line.includes('claim code')).map((line) => line.split(' ').at(-1));
  }

  code(number = 0) {
    return eventually(`a code from the app, which said ${short(this.errorLines)}`, () => this.codes()[number]);
  }

  /** The entries of its calls in the audit file, once there are at least `calls`. */
  ended(calls) {
    const lines = () => (existsSync(this.audit) ? readFileSync(this.audit, 'utf8') : '').split('\n').slice(0, -1);
    return eventually(`${calls} calls in the audit`, () => lines().length >= calls && lines().map((line) => JSON.parse(line)));
  }

  async stop(signal) {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      const exit = new Promise((resolve) => this.process.once('exit', resolve));
      this.process.kill(signal);
      await exit;
    }
  }
}

const throughGateway = (home, { by = connect, gatewayFlags = [], ...abilities }, use) =>
  by([process.env.GATEWAY, '--home', home, ...gatewayFlags], abilities, use);

/** An app and a gateway that has claimed it. */
async function claimed({ flags = [], ...abilities }, use) {
  const home = makeHome();
  const app = new App(home, flags);
  try {
    const code = await app.code();
    await throughGateway(home, abilities, async (client) => {
      succeeded(await client.call('tesseron__claim_session', { code }));
      await use(client, app);
    });
  } finally {
    await app.stop('SIGKILL');
  }
}

/** A proxy to the address of an app, whose connections can be cut. */
async function relay(url) {
  const { hostname, port } = new URL(url);
  const streams = new Set();
  const server = createServer((near) => {
    const far = dial(Number(port), hostname);
    for (const [from, to] of [[near, far], [far, near]]) {
      streams.add(from);
      from.on('error', () => {}).on('close', () => to.destroy());
      from.pipe(to);
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `ws://127.0.0.1:${server.address().port}/`,
    cut() {
      for (const stream of streams) stream.destroy();
      streams.clear();
    },
  };
}

/** Counts the notifications that the list of tools has changed. */
function watchTools(client) {
  const watched = { changes: 0 };
  client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => watched.changes++);
  return watched;
}

/** The text of the result of a tool that failed, after a check of its error code. */
function failed(result, code) {
  toolError(result);
  equal(`the code of ${short(result)}`, result.structuredContent?.code, code);
  return texts(result)[0];
}

const percents = (n) => Array.from({ length: n }, (_, i) => ({ progress: ((i + 1) * 100) / n, total: 100, message: `step ${i + 1}/${n}` }));

// Claims

for (const flags of [['--ws'], ['--unix'], ['--gateway-claims', '--any-user'], ['--unix', '--gateway-claims']]) {
  scenario(`an app is claimed by its code, and the client is notified of its tools: ${flags.join(' ')}`, async () => {
    const home = makeHome();
    const app = new App(home, flags);
    try {
      // If the manifest is there before the gateway starts, the gateway lists the app at once.
      await eventually('a manifest', () => readdirSync(instances(home)).some((name) => name.endsWith('.json')));
      await throughGateway(home, {}, async (client) => {
        const watched = watchTools(client);
        const code = await app.code();
        equal('the tools before the claim', (await listTools(client)).map((tool) => tool.name), OWN);
        // Neither text may contain the code, which is for a person to read off the app.
        const waiting = texts(succeeded(await client.call('tesseron__list_pending_claims', {})))[0];
        const hint = toolError(await client.call('tesseron__claim_session', { code: 'ZZZZ-ZZ' }));
        for (const [name, text] of [['what waits', waiting], ['the hint', hint]]) {
          contains(name, text, 'tools');
          holds(`${name} has no code`, !text.includes(code));
        }
        contains('the answer', texts(succeeded(await client.call('tesseron__claim_session', { code: code.toLowerCase() })))[0], 'tools__progress');
        await eventually('a notification of new tools', () => watched.changes > 0);
        const tools = await listTools(client);
        const actions = tools.map((tool) => tool.name).slice(OWN.length);
        equal('the actions, sorted', actions.toSorted(), expected.TOOLS.map((name) => `tools__${name}`));
        const readOnly = tools.filter((tool) => tool.annotations?.readOnlyHint).map((tool) => tool.name);
        equal('those that only read, sorted', readOnly.filter((name) => name.startsWith('tools__')).toSorted(), expected.READ_ONLY.map((name) => `tools__${name}`));
        for (const tool of tools) holds(`expected a description of ${tool.name}`, tool.description);
        const { agent } = value(succeeded(await client.call('tools__whoami', {})));
        equal('the agent that the app sees', agent.name, 'interop');
      });
      equal('the manifest stays as long as its app', readdirSync(instances(home)).length, 1);
      await app.stop('SIGTERM');
      equal('the exit status of the app', app.process.exitCode, 0);
      equal('the manifests of apps that have ended', readdirSync(instances(home)), []);
    } finally {
      await app.stop('SIGKILL');
    }
  });
}

scenario('once the client has left, the next one needs a new code', async () => {
  const home = makeHome();
  const app = new App(home);
  try {
    const first = await app.code();
    await throughGateway(home, {}, async (client) => {
      succeeded(await client.call('tesseron__claim_session', { code: first }));
    });
    const second = await app.code(1);
    await throughGateway(home, {}, async (client) => {
      toolError(await client.call('tesseron__claim_session', { code: first }));
      succeeded(await client.call('tesseron__claim_session', { code: second }));
      succeeded(await client.call('tools__chatty', {}));
    });
  } finally {
    await app.stop('SIGKILL');
  }
});

scenario('an app whose channel was cut comes back with its tools and without a new claim', async () => {
  const [home, there] = [makeHome(), makeHome()];
  const app = new App(home, ['--gateway-claims', '--any-user']);
  try {
    const [name] = await eventually('a manifest', () => {
      const names = readdirSync(instances(home)).filter((name) => name.endsWith('.json'));
      return names.length && names;
    });
    const manifest = JSON.parse(readFileSync(join(instances(home), name), 'utf8'));
    const proxy = await relay(manifest.transport.url);
    manifest.transport.url = proxy.url;
    writeFileSync(join(instances(there), name), JSON.stringify(manifest));
    await throughGateway(there, {}, async (client) => {
      const watched = watchTools(client);
      succeeded(await client.call('tesseron__claim_session', { code: await app.code() }));
      let updated = () => {};
      const running = client.call('tools__countdown', { from: 1000, step_ms: 20 }, { onprogress: () => updated() });
      await new Promise((resolve) => (updated = resolve));
      proxy.cut();
      failed(await running, -32010);
      const before = watched.changes;
      const back = async () => (await listTools(client)).some((tool) => tool.name === 'tools__chatty');
      const start = Date.now();
      while (!(await back())) {
        holds('expected the app to come back', Date.now() - start < PATIENCE);
        await sleep(50);
      }
      await eventually('to be told that it is back', () => watched.changes > before);
      succeeded(await client.call('tools__chatty', {}));
      equal('the codes that the app has shown', app.codes().length, 1);
    });
  } finally {
    await app.stop('SIGKILL');
  }
});

scenario('several apps of one gateway run at once, and each has its own tools', async () => {
  const home = makeHome();
  const apps = ['one', 'two', 'three'].map((id, i) => [id, new App(home, ['--app-id', id, i % 2 ? '--ws' : '--unix'])]);
  try {
    await throughGateway(home, {}, async (client) => {
      await Promise.all(apps.map(async ([, app]) => succeeded(await client.call('tesseron__claim_session', { code: await app.code() }))));
      const calls = apps.flatMap(([id]) => Array.from({ length: 10 }, (_, i) => [id, i + 1]));
      const results = await Promise.all(calls.map(([id, steps]) => client.call(`${id}__progress`, { steps, step_ms: 10 })));
      equal('the steps', results.map((result) => value(succeeded(result)).steps), calls.map(([, steps]) => steps));
      for (const [id, app] of apps) equal(`the calls of ${id}`, (await app.ended(10)).length, 10);
    });
  } finally {
    for (const [, app] of apps) await app.stop('SIGKILL');
  }
});

// Calls

scenario('progress crosses both hops update by update, and all of it before the result', async () => {
  await claimed({}, async (client) => {
    const { updates, times, onprogress } = collector();
    const result = await client.call('tools__progress', { steps: 5, step_ms: 200 }, { onprogress });
    equal('the result', value(succeeded(result)), { steps: 5, notified: true, done: true });
    equal('the updates on the wire', client.traffic.updates('tools/call'), percents(5));
    equal('the updates handed to the callback', updates, percents(5));
    for (let i = 1; i < times.length; i++) within(`milliseconds between update ${i} and the next`, times[i] - times[i - 1], 100, 1500);
  });
});

scenario('nothing is reported of a call that did not ask for it', async () => {
  await claimed({ flags: ['--unix'] }, async (client) => {
    succeeded(await client.call('tools__progress', { steps: 5, step_ms: 10 }));
    equal('progress on the wire', client.traffic.frames(DOWN, 'notifications/progress'), []);
  });
});

scenario('invoke_action is as good as the tool of the action', async () => {
  await claimed({ gatewayFlags: ['--surface', 'meta'] }, async (client) => {
    equal('the tools', (await listTools(client)).map((tool) => tool.name), OWN);
    const { updates, onprogress } = collector();
    const args = { steps: 3, step_ms: 100 };
    const result = await client.call('tesseron__invoke_action', { app_id: 'tools', action: 'progress', args }, { onprogress });
    equal('the result', value(succeeded(result)).steps, 3);
    equal('the updates', updates, percents(3));
  });
});

scenario('a cancelled call is not answered, ends at the app, and another call goes on', async () => {
  await claimed({}, async (client, app) => {
    const controller = new AbortController();
    let seen = 0;
    const onprogress = () => {
      if (++seen === 3) controller.abort('enough');
    };
    const other = client.call('tools__progress', { steps: 10, step_ms: 60 });
    const came = await client.call('tools__countdown', { from: 500, step_ms: 60 }, { onprogress, signal: controller.signal }).catch((error) => error);
    holds(`expected the call to end as aborted, came ${short(came)}`, came instanceof types.McpError);
    succeeded(await other);
    const [cancelled] = (await app.ended(2)).filter(({ tool }) => tool === 'countdown');
    equal('how it ended at the app', cancelled.outcome, 'cancelled');
    within('the steps that were done', cancelled.steps, 2, 100);
    const call = client.traffic.frames(UP, 'tools/call').find(({ msg }) => msg.params.name === 'tools__countdown');
    equal('responses to the cancelled call', client.traffic.answers(call), []);
  });
});

scenario('a call that the client gives up in time ends at the app', async () => {
  await claimed({ flags: ['--unix'] }, async (client, app) => {
    const came = await client.call('tools__countdown', { from: 500, step_ms: 50 }, { timeout: 300 }).catch((error) => error);
    equal(`the code of ${short(came)}`, came.code, types.ErrorCode.RequestTimeout);
    equal('how it ended at the app', (await app.ended(1))[0].outcome, 'cancelled');
    succeeded(await client.call('tools__chatty', {}));
  });
});

scenario('blocks of text come as they are', async () => {
  await claimed({}, async (client) => {
    equal('the blocks', texts(succeeded(await client.call('tools__chatty', {}))), expected.CHATTY);
    const blocks = texts(succeeded(await client.call('tools__long_output', { blocks: 20, chars: 65536 })));
    sameBytes('all blocks', blocks.join(''), expected.longOutput(20, 65536).join(''));
    equal('how many', blocks.length, 20);
  });
});

scenario('what an app refuses says its number, and what nobody has is an error', async () => {
  await claimed({ flags: ['--deadline', '0.3'] }, async (client) => {
    contains('the refusal', failed(await client.call('tools__progress', { steps: 'many' }), -32004), 'steps');
    failed(await client.call('tools__stuck', {}), -32002);
    const [unknown, nobody] = await Promise.all(['tools__no_such', 'nobody__chatty'].map((name) => client.call(name, {}).catch((error) => error)));
    for (const came of [unknown, nobody]) holds(`expected an error, came ${short(came)}`, came instanceof types.McpError || came.isError);
    succeeded(await client.call('tools__chatty', {}));
  });
});

scenario('an app that dies fails its calls and takes its tools along', async () => {
  await claimed({}, async (client, app) => {
    const watched = watchTools(client);
    let updated = () => {};
    const running = client.call('tools__countdown', { from: 1000, step_ms: 20 }, { onprogress: () => updated() });
    await new Promise((resolve) => (updated = resolve));
    await app.stop('SIGKILL');
    failed(await running, -32010);
    await eventually('a notification that its tools are gone', () => watched.changes > 0);
    equal('the tools', (await listTools(client)).map((tool) => tool.name), OWN);
  });
});

// Input requests of an app

scenario('the model and the user of the client are asked for the app', async () => {
  const asked = [];
  const sample = (params) => {
    asked.push(params);
    return 'Two foxes, été.';
  };
  let answer;
  const elicit = (params) => {
    asked.push(params);
    return answer;
  };
  await claimed({ sample, elicit }, async (client) => {
    equal('the summary', texts(succeeded(await client.call('tools__summarise', { text: 'Once there were two foxes.' }))), ['Two foxes, été.']);
    contains('what the model was asked', asked[0].messages, 'Once there were two foxes.');
    equal('maxTokens', asked[0].maxTokens, 400);
    for (const [action, outcome] of [['accept', { deleted: 'a' }], ['decline', { cancelled: true }], ['cancel', { cancelled: true }]]) {
      answer = { action };
      equal(`delete after ${action}`, value(succeeded(await client.call('tools__delete', { name: 'a' }))), outcome);
    }
    answer = { action: 'accept', content: { newName: 'b' } };
    equal('rename', value(succeeded(await client.call('tools__rename', { name: 'a' }))), { renamed: { from: 'a', to: 'b' } });
    equal('what the form asks for', asked.at(-1).requestedSchema.required, ['newName']);
    answer = { action: 'decline' };
    equal('rename without a name', value(succeeded(await client.call('tools__rename', { name: 'a' }))), { cancelled: true });
  });
});

scenario('a client without a model or a user is not asked', async () => {
  await claimed({ flags: ['--unix'] }, async (client) => {
    failed(await client.call('tools__summarise', { text: 'x' }), -32006);
    failed(await client.call('tools__rename', { name: 'x' }), -32007);
    equal('delete', value(succeeded(await client.call('tools__delete', { name: 'x' }))), { cancelled: true });
    for (const method of ['sampling/createMessage', 'elicitation/create']) equal(`${method} on the wire`, client.traffic.frames(DOWN, method), []);
  });
});

scenario('a client that probes for 2026-07-28 makes the handshake, in which an app can ask its user', async () => {
  const elicit = () => ({ action: 'accept', content: {} });
  await claimed({ by: connect2, mode: 'auto', elicit }, async (client) => {
    equal('delete', value(succeeded(await client.call('tools__delete', { name: 'a' }))), { deleted: 'a' });
    equal('the elicitations on the wire', client.traffic.frames(DOWN, 'elicitation/create').length, 1);
  });
});

// Resources, log, the end

scenario('the clock is listed and read, and its changes are sent as long as it is subscribed', async () => {
  await claimed({}, async (client) => {
    const updated = [];
    client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, ({ params }) => updated.push(params.uri));
    const [clock] = await pages((params) => client.listResources(params), 'resources');
    equal('the clock', [clock.uri, clock.mimeType], ['tesseron://tools/clock', 'application/json']);
    const { contents } = await client.readResource({ uri: clock.uri });
    within('its time, behind ours', Date.now() - JSON.parse(contents[0].text).unix_ms, -1000, 10_000);
    await client.subscribeResource({ uri: clock.uri });
    await eventually('two ticks', () => updated.length >= 2);
    await client.unsubscribeResource({ uri: clock.uri });
    const before = updated.length;
    await sleep(1300);
    equal('the ticks after the end of the subscription', updated.length, before);
    equal('the resources that ticked', [...new Set(updated)], [clock.uri]);
    const came = await client.readResource({ uri: 'tesseron://tools/no_such' }).catch((error) => error);
    holds(`expected a JSON-RPC error, came ${short(came)}`, came instanceof types.McpError);
  });
});

scenario('the level of the client decides which log records of an app it gets', async () => {
  const logs = [];
  await claimed({ onLog: (params) => logs.push(params) }, async (client) => {
    await client.setLoggingLevel('error');
    succeeded(await client.call('tools__bulk', { items: ['quiet'], fail: ['quiet'] }));
    await client.setLoggingLevel('warning');
    succeeded(await client.call('tools__bulk', { items: ['loud'], fail: ['loud'] }));
    const records = () => logs.filter(({ logger }) => logger === 'tools');
    await eventually('the record', () => records().length);
    equal('the levels', records().map(({ level }) => level), ['warning']);
    contains('the record', records()[0].data, 'loud');
  });
});

scenario('the gateway exits by itself when its input ends, though calls run', async () => {
  let traffic;
  await claimed({}, async (client, app) => {
    traffic = client.traffic;
    let updated = () => {};
    client.call('tools__countdown', { from: 1000, step_ms: 20 }, { onprogress: () => updated() }).catch(() => {});
    await new Promise((resolve) => (updated = resolve));
    await client.close();
    equal('how the call ended at the app', (await app.ended(1))[0].outcome, 'cancelled');
  });
  const closed = traffic.entries().find(({ ev }) => ev === 'end');
  const exit = await eventually('an exit', () => traffic.entries().find(({ ev }) => ev === 'exit'));
  equal('the exit status', exit.code, 0);
  within('milliseconds from the end of input to the exit', exit.ms - closed.ms, 0, 3500);
});

await run();
