// BLAKE3-256 of a Buffer, as hexadecimal digits. Node has no BLAKE3 of its own.
const IV = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
const ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const CHUNK = 1024, BLOCK = 64;
const CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8;

const turn = (word, bits) => (word >>> bits) | (word << (32 - bits));

function mix(v, a, b, c, d, x, y) {
  v[a] += v[b] + x; v[d] = turn(v[d] ^ v[a], 16);
  v[c] += v[d]; v[b] = turn(v[b] ^ v[c], 12);
  v[a] += v[b] + y; v[d] = turn(v[d] ^ v[a], 8);
  v[c] += v[d]; v[b] = turn(v[b] ^ v[c], 7);
}

function compress(chain, words, counter, length, flags) {
  const v = Uint32Array.from([...chain, ...IV.slice(0, 4), counter, counter / 2 ** 32, length, flags]);
  for (let m = words, round = 0; round < 7; round++, m = ORDER.map((at) => m[at])) {
    for (let i = 0; i < 4; i++) mix(v, i, 4 + i, 8 + i, 12 + i, m[2 * i], m[2 * i + 1]);
    for (let i = 0; i < 4; i++)
      mix(v, i, 4 + ((i + 1) % 4), 8 + ((i + 2) % 4), 12 + ((i + 3) % 4), m[8 + 2 * i], m[9 + 2 * i]);
  }
  return v.slice(0, 8).map((word, i) => word ^ v[8 + i]);
}

function wordsOf(block) {
  const padded = Buffer.alloc(BLOCK);
  block.copy(padded);
  return Array.from({ length: 16 }, (_, i) => padded.readUInt32LE(4 * i));
}

function chunkOf(data, counter, root) {
  let chain = IV;
  for (let at = 0; at === 0 || at < data.length; at += BLOCK) {
    const block = data.subarray(at, at + BLOCK), isLast = at + BLOCK >= data.length;
    const flags = (at === 0 ? CHUNK_START : 0) | (isLast ? CHUNK_END | root : 0);
    chain = compress(chain, wordsOf(block), counter, block.length, flags);
  }
  return chain;
}

function treeOf(data, counter, root) {
  if (data.length <= CHUNK) return chunkOf(data, counter, root);
  const chunks = 2 ** (31 - Math.clz32(Math.ceil(data.length / CHUNK) - 1)); // the left part is a full tree
  const left = treeOf(data.subarray(0, chunks * CHUNK), counter, 0);
  const right = treeOf(data.subarray(chunks * CHUNK), counter + chunks, 0);
  return compress(IV, [...left, ...right], 0, BLOCK, PARENT | root);
}

export function blake3(data) {
  const found = Buffer.alloc(32);
  treeOf(data, 0, ROOT).forEach((word, i) => found.writeUInt32LE(word, 4 * i));
  return found.toString("hex");
}
