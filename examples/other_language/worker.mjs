// A worker in JavaScript: it claims jobs over HTTP, renews its lease, and completes them with a proof.
// Nothing but Node 18 is needed. docs/reference/wire.md describes every byte that is sent here.
//   node worker.mjs                       makes a key, and prints it: the owner delegates to it
//   node worker.mjs URL MESH KIND [JOBS]  works on jobs of a kind, for ever or for so many
import { createHash, createPrivateKey, createPublicKey, randomBytes, sign } from "node:crypto";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { blake3 } from "./blake3.mjs";

// What this worker can do: a function for each kind. It may be async, and should look at `signal`.
const handlers = {
  "text.count": (text) => ({ words: text.split(/\s+/).filter(Boolean).length, letters: [...text].length }),
  "text.wait": (ms, { signal }) => sleep(ms, "waited", { signal }),
};

const CLAIM = "/job/claim", COMPLETE = "/job/complete";
const [url, mesh, kind, most] = process.argv.slice(2);

// --- the key: an Ed25519 seed, and the latest time that it may have signed -----------------------
const FILE = process.env.WORKER_KEY ?? "worker-key.json";
const kept = existsSync(FILE)
  ? JSON.parse(readFileSync(FILE, "utf8"))
  : { seed: randomBytes(32).toString("hex"), mark: 0 };
const pkcs8 = Buffer.from("302e020100300506032b657004220420" + kept.seed, "hex");
const key = createPrivateKey({ key: pkcs8, format: "der", type: "pkcs8" });
const did = `did:key:z${base58(Buffer.concat([Buffer.from([0xed, 0x01]), publicBytes()]))}`;

function publicBytes() {
  return Buffer.from(createPublicKey(key).export({ format: "jwk" }).x, "base64url");
}

function base58(bytes) {
  const digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
  let text = "";
  for (let left = BigInt(`0x${bytes.toString("hex")}`); left > 0n; left /= 58n) text = digits[left % 58n] + text;
  return text;
}

function save() {
  writeFileSync(`${FILE}.new`, JSON.stringify(kept), { mode: 0o600 });
  renameSync(`${FILE}.new`, FILE);
}

// --- bytes: canonical JSON, signatures with their purpose, timestamps that are never used twice --
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const names = Object.keys(value).filter((name) => value[name] !== undefined).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

function signed(type, text) {
  const payload = Buffer.from(text);
  return sign(null, Buffer.concat([Buffer.from(`DSSEv1 ${type.length} ${type} ${payload.length} `), payload]), key);
}

const sha256 = (data) => createHash("sha256").update(data).digest("hex");
const pack = ([wall, logical]) => ((BigInt(wall) << 16n) | BigInt(logical)).toString(16).padStart(16, "0");

let last = kept.mark;
function stamp(after) {
  const wall = Math.max(Date.now(), last + 1, after[0] + 1);
  if (wall > kept.mark) {
    kept.mark = wall + 1000; // written before it is used: a crash must not make this key sign a time twice
    save();
  }
  last = wall;
  return [wall, 0];
}

// --- requests: signed for this method, target and body, once -------------------------------------
async function ask(method, target, body = "") {
  const proof = { nonce: randomBytes(16).toString("base64url"), sha256: sha256(body) };
  const message = canonical({ mesh, subject: `${method} ${target}`, signers: [did], at_ms: Date.now(), body: proof });
  const sig = signed("application/vnd.antiphon.http-request+json", message).toString("hex");
  const envelope = Buffer.from(`{"message":${message},"sigs":["${sig}"]}`).toString("base64url");
  const headers = { authorization: `Antiphon ${envelope}` };
  const answer = await fetch(url + target, { method, headers, body: body || undefined });
  const text = await answer.text();
  const said = text.startsWith("{") ? JSON.parse(text) : { detail: text };
  if (answer.ok) return said;
  throw Object.assign(new Error(`${answer.status} ${said.reason ?? ""}: ${said.detail}`), { status: answer.status });
}

// Writes the next record about a job. The same bytes may be sent again: they are stored once.
async function write(job, type, command, body) {
  const auth = job.auth[command].length ? job.auth[command] : undefined;
  const head = { v: 1, mesh, author: did, hlc: stamp(job.hlc), prev: job.prev, auth, type };
  const op = canonical({ ...head, body: { kind: job.kind, job: job.id, ...body } });
  const record = `${op}\n${canonical({ sig: signed("application/vnd.antiphon.op+json", op).toString("base64") })}`;
  for (let tries = 1; ; tries++) {
    try {
      const { seq, verdict } = await ask("POST", "/v1/records", record);
      if (verdict && verdict !== "ok") throw Object.assign(new Error(verdict), { status: 422 });
      return Object.assign(job, { prev: seq, hlc: head.hlc });
    } catch (problem) {
      const mayPass = !problem.status || problem.status === 429 || problem.status >= 500;
      if (!mayPass || tries === 5) throw problem;
      await sleep(200 * 2 ** tries);
    }
  }
}

// --- one job -------------------------------------------------------------------------------------
function callIn(schedule) {
  const { body } = JSON.parse(schedule.split("\n")[0]);
  const { command, args } = body.manifest;
  const isOurs = command[0] === `@${body.kind}` && args.length === 1 && body.kind in handlers;
  return isOurs && !body.requires?.length ? JSON.parse(args[0]) : null;
}

async function run({ job: head, auth, schedule }) {
  const job = { ...head, auth }, lease_ms = job.lease_ms, stop = new AbortController();
  await write(job, "job.claim", CLAIM, { lease_ms, begin: true });
  const fence = pack(job.hlc), began = Date.now(), over = new AbortController();
  console.log(`claimed ${job.id}`);
  const cut = setTimeout(() => stop.abort(new Error("no renewal in time")), (lease_ms * 2) / 3);
  const renewing = (async () => {
    while (!over.signal.aborted) {
      await sleep(lease_ms / 3, null, { signal: over.signal }).catch(() => {});
      if (over.signal.aborted) return;
      await write(job, "job.claim", CLAIM, { lease_ms, fence });
      cut.refresh();
      console.log(`renewed ${job.id}`);
    }
  })().catch((problem) => stop.abort(problem)); // the lease is lost, or may be: stop the work
  let outcome;
  try {
    const { args, kwargs } = callIn(schedule);
    const value = await handlers[job.kind](...args, { ...kwargs, signal: stop.signal });
    outcome = { text: JSON.stringify(value ?? null) };
    if (Buffer.byteLength(outcome.text) > 65536) throw new RangeError("the result has more than 64 KiB");
  } catch (problem) {
    outcome = { error: { name: problem.name || "Error", message: String(problem.message).slice(0, 4000) } };
  }
  over.abort();
  await renewing;
  clearTimeout(cut);
  if (stop.signal.aborted) throw stop.signal.reason;
  if (outcome.error) return write(job, "job.yield", COMPLETE, { fence, reason: "error", error: outcome.error });
  const outputs = [{ name: "result", type: "application/json", text: outcome.text }];
  const proof = {
    ended: pack([Date.now(), 0]),
    runner: { name: "worker.mjs", version: process.version, platform: `${process.platform} ${process.arch}` },
    usage: { wall_ms: Date.now() - began },
  };
  const statement = canonical({
    _type: "https://in-toto.io/Statement/v1",
    subject: [{ name: "result", digest: { blake3: blake3(Buffer.from(outcome.text)), sha256: sha256(outcome.text) } }],
    predicateType: "urn:antiphon:proof-of-execution:v1",
    predicate: {
      ...proof, mesh, kind: job.kind, job: job.id, worker: did, fence, started: fence, status: "succeeded",
      isolation: { level: "none" },
    },
  });
  proof.sig = signed("application/vnd.in-toto+json", statement).toString("base64");
  await write(job, "job.complete", COMPLETE, { fence, status: "succeeded", outputs, proof });
  console.log(`completed ${job.id}`);
}

// --- the loop ------------------------------------------------------------------------------------
async function main() {
  save();
  if (!kind) return console.log(did);
  await sleep(Math.max(kept.mark - Date.now(), 0)); // it may have signed up to then
  for (let left = most ? Number(most) : Infinity; left > 0; ) {
    try {
      const { items } = await ask("GET", `/v1/offers?kind=${encodeURIComponent(kind)}&wait=20`);
      const able = items.filter((offer) => callIn(offer.schedule));
      if (!able.length) await sleep(items.length ? 1000 : 0);
      else {
        await run(able[Math.floor(Math.random() * able.length)]); // by chance: others choose, too
        left -= 1;
      }
    } catch (problem) {
      if (problem.status === 401 || problem.status === 403) throw problem;
      if (problem.status !== 409) console.error(`${problem.message}`); // 409: somebody was first
      await sleep(500);
    }
  }
}

main().catch((problem) => {
  console.error(problem.message);
  process.exitCode = 1;
});
