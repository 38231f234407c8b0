// Named scenarios: their declaration, the checks that they can make, and the output for each of them. The same as ../scenario.py.

import { isDeepStrictEqual } from 'node:util';

const PATIENCE = 20_000; // milliseconds for one scenario
const declared = [];

/** A check that failed. Its text has the expected and the actual value. */
export class Unmet extends Error {}

export function scenario(sentence, body) {
  declared.push([sentence, body]);
}

/** Runs every scenario, and prints a line with its outcome. The exit status is 0 if all were run, even if some have failed. */
export async function run() {
  for (const [sentence, body] of declared) {
    try {
      await bounded(body());
      console.log(`ok ${sentence}`);
    } catch (error) {
      if (!(error instanceof Unmet)) console.error(error);
      console.log(`FAILED ${sentence}: ${String(error instanceof Unmet ? error.message : error).replace(/\s+/g, ' ')}`);
    }
  }
  process.exit(0);
}

function bounded(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Unmet(`expected an end within ${PATIENCE} ms, came none`)), PATIENCE);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export function equal(what, came, expected) {
  if (!isDeepStrictEqual(came, expected)) throw new Unmet(`${what}: expected ${short(expected)}, came ${short(came)}`);
}

/** Compares long texts. The error shows the place of the first difference. */
export function sameBytes(what, came, expected) {
  const [left, right] = [Buffer.from(came), Buffer.from(expected)];
  if (left.equals(right)) return;
  const parted = right.findIndex((byte, i) => left[i] !== byte);
  const at = parted < 0 ? right.length : parted;
  const near = (bytes) => `'${bytes.subarray(at, at + 20)}'`;
  throw new Unmet(`${what}: expected ${right.length} bytes with ${near(right)} at ${at}, came ${left.length} with ${near(left)} there`);
}

export function within(what, came, low, high) {
  if (came < low || came > high) throw new Unmet(`${what}: expected ${low} to ${high}, came ${came}`);
}

export function contains(what, came, part) {
  const text = typeof came === 'string' ? came : JSON.stringify(came);
  if (!text.toLowerCase().includes(part.toLowerCase())) throw new Unmet(`${what}: expected '${part}' in it, came ${short(came)}`);
}

export function holds(what, fine) {
  if (!fine) throw new Unmet(what);
}

export function short(value, limit = 400) {
  const text = JSON.stringify(value) ?? 'undefined';
  return text.length <= limit ? text : `${text.slice(0, limit / 2)} [..] ${text.slice(-limit / 2)}`;
}
