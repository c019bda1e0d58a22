import type { Prediction, Head, HeadSwitch, Place, Sizes, Step, SwitchReport, Token } from '../types.ts';
import { wasi } from './wasi.ts';

export interface ModelFiles {
  name: string;
  config: Uint8Array;
  parameters: Uint8Array;
  vocab: Uint8Array;
  merges: Uint8Array;
}

interface Exports {
  memory: WebAssembly.Memory;
  _initialize?(): void;
  engine_alloc(bytes: number): number;
  engine_free(at: number): void;
  engine_error(): number;
  engine_text(): number;
  engine_text_bytes(): number;
  engine_numbers(): number;
  engine_numbers_count(): number;
  engine_load(files: number): number;
  engine_probe(scores: number, heads: number): number;
  engine_tokenize(text: number, bytes: number): number;
  engine_start(ids: number, count: number): number;
  engine_advance(): number;
  engine_report(top: number): number;
  engine_weights(layer: number, head: number, row: number, rows: number): number;
  engine_value_norms(layer: number): number;
  engine_steps(layer: number, head: number): number;
  recorded_load(file: number, bytes: number): number;
  recorded_weights(layer: number, head: number, row: number, rows: number): number;
  recorded_pair(layer: number, head: number, query: number, key: number): number;
  engine_switch(which: number, heads: number, count: number, lastOnly: number): number;
  engine_switch_advance(which: number): number;
  engine_switch_report(which: number, top: number): number;
  engine_switch_weights(layer: number): number;
  engine_switch_changes(first: number, rows: number): number;
  engine_probe_draws(length: number, draws: number, seed: number): number;
  engine_set_aside(back: number): number;
}

const offNumbers = { zero: 1, mean: 2, even: 3 };

// Passes under switches: one that is shown, one that measures.
export type SwitchedPass = 'shown' | 'measured';
const passNumbers: Record<SwitchedPass, number> = { shown: 0, measured: 1 };

// web/engine/engine.cc, called with what JavaScript has: texts, arrays, exceptions.
export class Engine {
  sizes!: Sizes;
  private constructor(private readonly wasm: Exports) {}

  static async create(module: BufferSource): Promise<Engine> {
    let exports: Exports | undefined;
    const imports = wasi(() => exports!.memory.buffer);
    const made = await WebAssembly.instantiate(module, imports);
    exports = made.instance.exports as unknown as Exports;
    exports._initialize?.();
    return new Engine(exports);
  }

  get bytes(): number {
    return this.wasm.memory.buffer.byteLength;
  }

  load(files: ModelFiles): void {
    const parts = [new TextEncoder().encode(files.name), files.config, files.parameters,
                   files.vocab, files.merges];
    const places = parts.map((part) => this.put(part));
    const table = new Uint32Array(parts.flatMap((part, n) => [places[n]!, part.length]));
    try {
      this.with(new Uint8Array(table.buffer), (at) => this.check(this.wasm.engine_load(at)));
    } finally {
      for (const place of places) this.wasm.engine_free(place);
    }
    this.sizes = JSON.parse(this.text()) as Sizes;
  }

  // scores: value, rows and uniform of duplicate, then of induction, of every head
  probe(scores: number[]): void {
    const numbers = new Float64Array(scores);
    this.with(new Uint8Array(numbers.buffer),
              (at) => this.check(this.wasm.engine_probe(at, numbers.length / 6)));
  }

  tokenize(text: string): Token[] {
    const bytes = new TextEncoder().encode(text);
    this.with(bytes, (at) => this.check(this.wasm.engine_tokenize(at, bytes.length)));
    return JSON.parse(this.text()) as Token[];
  }

  start(ids: number[]): void {
    const numbers = new Int32Array(ids);
    this.with(new Uint8Array(numbers.buffer),
              (at) => this.check(this.wasm.engine_start(at, ids.length)));
  }

  // How many layers are left.
  advance(): number {
    return this.check(this.wasm.engine_advance());
  }

  report(top: number): { heads: Head[]; predictions: Prediction[]; opening: Place } {
    this.check(this.wasm.engine_report(top));
    return JSON.parse(this.text());
  }

  // [num_heads, rows, tokens], or of one head [rows, tokens]
  weights(layer: number, head: number, row: number, rows: number): Float32Array {
    this.check(this.wasm.engine_weights(layer, head, row, rows));
    return this.numbers();
  }

  valueNorms(layer: number): Float32Array {
    this.check(this.wasm.engine_value_norms(layer));
    return this.numbers();
  }

  steps(layer: number, head: number): Step[] {
    this.check(this.wasm.engine_steps(layer, head));
    const described = JSON.parse(this.text()) as (Step & { offset: number })[];
    const numbers = this.numbers();
    return described.map(({ offset, ...step }) => {
      const count = step.head_shape.reduce((product, size) => product * size, 1);
      return { ...step, values: numbers.slice(offset, offset + count) };
    });
  }

  // A pass of the text that was run last, with these heads switched. The one that measures reads no
  // more than the next token.
  startSwitched(pass: SwitchedPass, heads: HeadSwitch[]): void {
    const numbers = new Float64Array(heads.flatMap((s) =>
      [s.layer, s.head, s.scaled ? 1 : 0, s.temperature, s.keys, s.off ? offNumbers[s.off] : 0]));
    this.with(new Uint8Array(numbers.buffer), (at) => this.check(
      this.wasm.engine_switch(passNumbers[pass], at, heads.length, pass === 'measured' ? 1 : 0)));
  }

  // How many layers are left.
  advanceSwitched(pass: SwitchedPass): number {
    return this.check(this.wasm.engine_switch_advance(passNumbers[pass]));
  }

  switchReport(pass: SwitchedPass, top: number): SwitchReport {
    this.check(this.wasm.engine_switch_report(passNumbers[pass], top));
    return JSON.parse(this.text()) as SwitchReport;
  }

  // [num_heads, tokens, tokens]
  switchedWeights(layer: number): Float32Array {
    this.check(this.wasm.engine_switch_weights(layer));
    return this.numbers();
  }

  // [rows, 2]: how far the prediction after a token moved, the change of ln P of the one that follows
  rowChanges(first: number, rows: number): Float32Array {
    this.check(this.wasm.engine_switch_changes(first, rows));
    return this.numbers();
  }

  // Token ids, [draws][2 · length + 1]
  probeDraws(probe: { length: number; draws: number; seed: number }): number[][] {
    this.check(this.wasm.engine_probe_draws(probe.length, probe.draws, probe.seed));
    return JSON.parse(this.text()) as number[][];
  }

  // The last layer of a pass beside the one that is shown, and what is read of it.
  beside<T>(read: () => T): T {
    this.check(this.wasm.engine_set_aside(0));
    try {
      this.advance();
      return read();
    } finally {
      this.check(this.wasm.engine_set_aside(1));
    }
  }

  // Room for a recording, which is decoded straight into it: it is in memory once.
  recordingRoom(bytes: number): number {
    return this.room(bytes);
  }

  // Valid until the engine's memory grows.
  memory(at: number, bytes: number): Uint8Array {
    return new Uint8Array(this.wasm.memory.buffer, at, bytes);
  }

  loadRecording(at: number, bytes: number): void {
    this.check(this.wasm.recorded_load(at, bytes));
  }

  // [num_heads, rows, tokens], or of one head [rows, tokens]
  recordedWeights(layer: number, head: number, row: number, rows: number): Float32Array {
    this.check(this.wasm.recorded_weights(layer, head, row, rows));
    return this.numbers();
  }

  // q of the query, then k of the key
  recordedPair(layer: number, head: number, query: number, key: number): Float32Array {
    this.check(this.wasm.recorded_pair(layer, head, query, key));
    return this.numbers();
  }

  private room(bytes: number): number {
    const at = this.wasm.engine_alloc(Math.max(bytes, 1));
    if (at === 0) throw new Error('the browser has no more memory for this');
    return at;
  }

  private put(bytes: Uint8Array): number {
    const at = this.room(bytes.length);
    new Uint8Array(this.wasm.memory.buffer).set(bytes, at);
    return at;
  }

  private with(bytes: Uint8Array, use: (at: number) => void): void {
    const at = this.put(bytes);
    try {
      use(at);
    } finally {
      this.wasm.engine_free(at);
    }
  }

  private check(status: number): number {
    if (status >= 0) return status;
    const memory = new Uint8Array(this.wasm.memory.buffer);
    const begin = this.wasm.engine_error();
    const end = memory.indexOf(0, begin);
    throw new Error(new TextDecoder().decode(memory.slice(begin, end)));
  }

  private text(): string {
    const begin = this.wasm.engine_text();
    return new TextDecoder().decode(
      new Uint8Array(this.wasm.memory.buffer, begin, this.wasm.engine_text_bytes()));
  }

  private numbers(): Float32Array {
    return new Float32Array(this.wasm.memory.buffer, this.wasm.engine_numbers(),
                            this.wasm.engine_numbers_count()).slice();
  }
}
