import type { SeededRandom } from "./random.ts";

/** Longest input that is made: parsers are bounded by bytes, and their bounds are tested on their own. */
const inputBytesMax = 4096;

/** Changes to one input before it is tried; few, so that most of its meaning stays. */
const changesMax = 4;

/** Values at which lengths, counts and signs turn over. */
const edges = [0, 1, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0xffff, 0x1_0000, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

/** What changes are made of. */
export interface Material {
  /** Inputs that reached something; one of them is changed, others lend pieces. */
  readonly corpus: readonly Buffer[];
  /** Words that the parser gives a meaning to. */
  readonly dictionary: readonly string[];
}

/** An input that is like one of the corpus, but not the same. */
export function mutate({ corpus, dictionary }: Material, random: SeededRandom): Buffer {
  let input = Buffer.from(random.pick(corpus) ?? Buffer.alloc(0));
  const words = dictionary.map((word) => Buffer.from(word, "latin1"));
  for (let changes = random.below(changesMax) + 1; changes > 0; changes -= 1) {
    const change = random.pick(changesOf);
    if (change !== undefined) input = Buffer.from(change({ input, corpus, words, random }));
  }
  return input.subarray(0, inputBytesMax);
}

interface Place {
  readonly input: Buffer;
  readonly corpus: readonly Buffer[];
  readonly words: readonly Buffer[];
  readonly random: SeededRandom;
}

type Change = (place: Place) => Buffer;

const changesOf: readonly Change[] = [
  flipBit,
  setByte,
  insertBytes,
  cutPiece,
  repeatPiece,
  splice,
  insertWord,
  writeEdge,
];

function flipBit({ input, random }: Place): Buffer {
  const at = random.below(input.length);
  if (input.length > 0) input[at] = (input[at] ?? 0) ^ (1 << random.below(8));
  return input;
}

function setByte({ input, random }: Place): Buffer {
  if (input.length > 0) input[random.below(input.length)] = random.below(256);
  return input;
}

function insertBytes({ input, random }: Place): Buffer {
  const bytes = Buffer.from(Array.from({ length: random.below(8) + 1 }, () => random.below(256)));
  return inserted(input, bytes, random);
}

function cutPiece({ input, random }: Place): Buffer {
  const [from, to] = piece(input, random);
  return Buffer.concat([input.subarray(0, from), input.subarray(to)]);
}

function repeatPiece({ input, random }: Place): Buffer {
  const [from, to] = piece(input, random);
  const copies = Array.from({ length: random.below(8) + 1 }, () => input.subarray(from, to));
  return inserted(input, Buffer.concat(copies), random);
}

function splice({ input, corpus, random }: Place): Buffer {
  const other = random.pick(corpus) ?? input;
  return Buffer.concat([
    input.subarray(0, random.below(input.length + 1)),
    other.subarray(random.below(other.length + 1)),
  ]);
}

function insertWord({ input, words, random }: Place): Buffer {
  return inserted(input, random.pick(words) ?? Buffer.alloc(0), random);
}

function writeEdge({ input, random }: Place): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(random.pick(edges) ?? 0);
  const edge = bytes.subarray(random.below(4));
  const at = random.below(input.length + 1);
  return Buffer.concat([input.subarray(0, at), edge, input.subarray(at + edge.length)]);
}

function inserted(input: Buffer, bytes: Buffer, random: SeededRandom): Buffer {
  const at = random.below(input.length + 1);
  return Buffer.concat([input.subarray(0, at), bytes, input.subarray(at)]);
}

function piece(input: Buffer, random: SeededRandom): [from: number, to: number] {
  const from = random.below(input.length + 1);
  return [from, from + random.below(Math.min(input.length - from, 64) + 1)];
}
