// A recorded text behind messages: what the program kept of it, and weights of any row from that.
import { fromBase64, verify } from '../blocks.ts';
import type { Block } from '../state.ts';
import { shrunk } from '../tiles.ts';
import type { Pair, Pooled, Recorded, Row, Run } from '../types.ts';
import { turn, type Post } from './host.ts';
import type { Engine } from './module.ts';

// Which row: that of a token, or that of the strongest pair in a block.
interface RowWish {
  layer: number;
  head: number;
  over: 'mean' | 'max' | null;
  query: number;
  block: Block | null;
}
interface PairWish {
  layer: number;
  head: number;
  query: number;
  key: number;
}
export type RecordedWish =
  // data: base64, decoded where it does not hold up the page
  | { kind: 'recording'; data: string; check: string | undefined; text: string; recorded: Recorded }
  | { kind: 'row'; row: RowWish }
  | { kind: 'pair'; pair: PairWish };
export type RecordedRequest = RecordedWish & { id: number };
export type RecordedAnswer =
  | { kind: 'row'; id: number; row: Row; bytes: number }
  | { kind: 'pair'; id: number; pair: Pair };

// A .safetensors file in the engine's memory.
class File {
  private readonly entries: Record<string, { data_offsets: [number, number] }>;
  private readonly begin: number;

  constructor(private readonly bytes: () => Uint8Array) {
    const all = bytes();
    const length = Number(new DataView(all.buffer, all.byteOffset).getBigUint64(0, true));
    this.begin = 8 + length;
    this.entries = JSON.parse(new TextDecoder().decode(all.subarray(8, this.begin)));
  }

  has(name: string): boolean {
    return name in this.entries;
  }

  copy(name: string): Uint8Array<ArrayBuffer> {
    const entry = this.entries[name];
    if (!entry) throw new Error(`page: the recording lacks ${name}`);
    return this.bytes().slice(this.begin + entry.data_offsets[0], this.begin + entry.data_offsets[1]) as Uint8Array<ArrayBuffer>;
  }

  floats(name: string): Float32Array {
    return new Float32Array(this.copy(name).buffer);
  }

  wholes(name: string): Int32Array {
    return new Int32Array(this.copy(name).buffer);
  }
}

// Into the engine's memory, some at a time: where there is no worker, the page stays awake.
async function decoded(engine: Engine, text: string): Promise<{ at: number; bytes: number }> {
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  const bytes = (text.length / 4) * 3 - padding;
  if (!Number.isInteger(bytes) || bytes < 8) throw new Error('page: the recording was cut short');
  const at = engine.recordingRoom(bytes);
  const piece = 1 << 20; // a multiple of four
  for (let from = 0, to = 0; from < text.length; from += piece) {
    const part = fromBase64(text.slice(from, from + piece), 'recording');
    engine.memory(at + to, part.length).set(part);
    to += part.length;
    await turn();
  }
  return { at, bytes };
}

interface Loaded {
  engine: Engine;
  file: File;
  recorded: Recorded;
}

export class RecordedHost {
  private loaded: Promise<Loaded> | null = null;

  async receive(engine: Engine, request: RecordedRequest, post: Post): Promise<void> {
    const { id } = request;
    if (request.kind === 'recording') {
      const begun = performance.now();
      this.loaded = this.load(engine, request);
      const { file, recorded } = await this.loaded;
      post({ kind: 'loaded', sizes: recorded.sizes }, []);
      const run = makeRun(engine, file, recorded, request.text, begun);
      const arrays = [run.weights, run.norms, run.pooled?.tiles, run.pooled?.last, run.pooled?.small.tiles];
      post({ kind: 'run', id, run, bytes: engine.bytes }, arrays.flatMap((a) => (a ? [a.buffer] : [])));
    } else if (this.loaded) {
      const loaded = await this.loaded;
      if (request.kind === 'row') {
        const row = makeRow(loaded, request.row);
        post({ kind: 'row', id, row, bytes: engine.bytes }, [row.values.buffer]);
      } else {
        const { layer, head, query, key } = request.pair;
        const both = engine.recordedPair(layer, head, query, key);
        const [q, k] = [both.slice(0, both.length / 2), both.slice(both.length / 2)];
        post({ kind: 'pair', id, pair: { ...request.pair, q, k } }, [q.buffer, k.buffer]);
      }
    }
  }

  private async load(engine: Engine, request: RecordedRequest & { kind: 'recording' }): Promise<Loaded> {
    const { at, bytes } = await decoded(engine, request.data);
    verify(engine.memory(at, bytes), 'recording', request.check);
    engine.loadRecording(at, bytes);
    return { engine, file: new File(() => engine.memory(at, bytes)), recorded: request.recorded };
  }
}

const thumbnailCells = 96;

function readPooled(file: File, count: number): Pooled {
  const tiles = { cells: Math.min(256, count), tiles: file.copy('tiles') };
  return { ...tiles, last: file.floats('last'), small: shrunk(tiles, thumbnailCells) };
}

function makeRun(engine: Engine, file: File, recorded: Recorded, text: string, begun: number): Run {
  const { tokens, heads, predictions, opening } = recorded;
  const { num_layers, num_heads } = recorded.sizes;
  const count = tokens.length;
  const norms = new Float32Array(num_layers * num_heads * count);
  for (let layer = 0; layer < num_layers; ++layer) norms.set(file.floats(`layers.${layer}.norms`), layer * num_heads * count);
  const pooled = file.has('tiles') ? readPooled(file, count) : undefined;
  const weights = new Float32Array(pooled ? 0 : num_layers * num_heads * count * count);
  for (let layer = 0; layer < num_layers && !pooled; ++layer) {
    weights.set(engine.recordedWeights(layer, -1, 0, count), layer * num_heads * count * count);
  }
  return { text, tokens, heads, predictions, opening, weights, norms, begun: performance.timeOrigin + begun,
           milliseconds: performance.now() - begun,
           ...(pooled ? { pooled } : {}) };
}

// Rows [first, first + rows) of a head; of one that was not kept in full the strongest keys alone,
// NaN for the others that a token sees. The last row of every head is kept.
function rowsOfHead({ engine, file, recorded }: Loaded, layer: number, head: number, first: number,
                    rows: number): Float32Array {
  const index = layer * recorded.sizes.num_heads + head;
  if (recorded.full === null || recorded.full.includes(index)) return engine.recordedWeights(layer, head, first, rows);
  const count = recorded.tokens.length;
  const keys = file.wholes(`layers.${layer}.keys.${head}`);
  const top = file.floats(`layers.${layer}.top.${head}`);
  const out = new Float32Array(rows * count);
  for (let i = 0; i < rows; ++i) {
    out.fill(NaN, i * count, i * count + first + i + 1);
    for (let n = 0; n < recorded.strongest; ++n) {
      const at = (first + i) * recorded.strongest + n;
      if (keys[at]! >= 0) out[i * count + keys[at]!] = top[at]!;
    }
  }
  if (first + rows === count) out.set(file.floats('last').subarray(index * count, (index + 1) * count), (rows - 1) * count);
  return out;
}

function rowsOf(loaded: Loaded, wish: RowWish, first: number, rows: number): Float32Array {
  if (!wish.over) return rowsOfHead(loaded, wish.layer, wish.head, first, rows);
  const { num_heads } = loaded.recorded.sizes;
  const out = new Float32Array(rows * loaded.recorded.tokens.length);
  for (let head = 0; head < num_heads; ++head) {
    const of = rowsOfHead(loaded, wish.layer, head, first, rows);
    for (let n = 0; n < out.length; ++n) {
      out[n] = wish.over === 'max' ? Math.max(out[n]!, of[n]!) : out[n]! + of[n]! / num_heads;
    }
  }
  return out;
}

function makeRow(loaded: Loaded, wish: RowWish): Row {
  const { layer, head, over, block } = wish;
  if (!block) return { layer, head, over, query: wish.query, key: null, values: rowsOf(loaded, wish, wish.query, 1) };
  const count = loaded.recorded.tokens.length;
  const [first, end] = block.queries;
  const rows = rowsOf(loaded, wish, first, end - first);
  let [query, key, most] = [first, Math.min(block.keys[0], first), -1];
  for (let i = first; i < end; ++i) {
    for (let j = block.keys[0]; j < block.keys[1] && j <= i; ++j) {
      const weight = rows[(i - first) * count + j]!;
      if (weight > most) [query, key, most] = [i, j, weight];
    }
  }
  return { layer, head, over, query, key, values: rows.slice((query - first) * count, (query - first + 1) * count) };
}
