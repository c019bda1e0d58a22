import type { Run, Sizes, Step, Token } from '../types.ts';
import { Beside, type BesideAnswer, type BesideRequest } from './beside.ts';
import { tokensToRun } from './limit.ts';
import { Engine, type ModelFiles } from './module.ts';
import { RecordedHost, type RecordedAnswer, type RecordedRequest } from './recorded.ts';
import { Switching, type SwitchingAnswer, type SwitchingRequest } from './switching.ts';

// What the page asks of the engine, and what comes back. `id` grows with every request.
export type Request =
  | { kind: 'engine'; engine: Uint8Array }
  | { kind: 'load'; files: ModelFiles; probe: number[] | null }
  | { kind: 'run'; id: number; text: string }
  | { kind: 'steps'; id: number; layer: number; head: number }
  | BesideRequest
  | RecordedRequest
  | SwitchingRequest;

export type Answer =
  | { kind: 'started' }
  | { kind: 'loaded'; sizes: Sizes }
  | { kind: 'run'; id: number; run: Run; bytes: number }
  | { kind: 'steps'; id: number; layer: number; head: number; steps: Step[] }
  | { kind: 'error'; id: number; message: string }
  | BesideAnswer
  | RecordedAnswer
  | SwitchingAnswer;

export type Post = (answer: Answer, transfer: Transferable[]) => void;

const shownPredictions = 5;

// Lets messages that came in the meantime be received.
export function turn(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

async function inflate(bytes: Uint8Array): Promise<ArrayBuffer> {
  const stream = new Blob([bytes as BlobPart]).stream()
    .pipeThrough(new DecompressionStream('deflate-raw'));
  return new Response(stream).arrayBuffer();
}

async function startEngine(deflated: Uint8Array): Promise<Engine> {
  if (typeof WebAssembly === 'undefined') throw new Error('WebAssembly is switched off in this browser, and this page needs it');
  try {
    return await Engine.create(await inflate(deflated));
  } catch (error) {
    if (error instanceof RangeError) throw new Error('there is not enough memory for this page');
    throw new Error('this page is damaged: its engine cannot be read');
  }
}

// The engine behind messages: in a worker, or where there is none in the page itself. Of texts that
// come while one is being run only the last is run, and it does not wait: a pass is left between
// two layers.
export class Host {
  private started: Promise<Engine> | null = null;
  private engine: Engine | null = null; // with a model
  private wanted: { id: number; text: string } | null = null;
  private busy = false;
  private readonly recorded = new RecordedHost();
  private readonly switching: Switching;

  private readonly beside: Beside;

  constructor(private readonly post: Post) {
    this.switching = new Switching(post, turn);
    this.beside = new Beside(post, turn, readRun);
  }

  async receive(request: Request): Promise<void> {
    try {
      if (request.kind === 'engine') {
        this.started = startEngine(request.engine);
        await this.started;
        this.post({ kind: 'started' }, []);
      } else if (request.kind === 'load') {
        await this.load(request);
      } else if (request.kind === 'run') {
        this.wanted = request;
        this.switching.forget();
        await this.runWanted();
      } else if (request.kind === 'recording' || request.kind === 'row' || request.kind === 'pair') {
        await this.recorded.receive(await this.started!, request, this.post);
      } else if (request.kind === 'switched' || request.kind === 'effects') {
        if (this.engine) await this.switching.receive(this.engine, request);
      } else if (request.kind === 'second' || request.kind === 'diagnose') {
        this.beside.add(request);
        await this.runWanted();
      } else if (this.engine) {
        const { id, layer, head } = request;
        const steps = this.engine.steps(layer, head);
        this.post({ kind: 'steps', id, layer, head, steps }, steps.map((s) => s.values.buffer));
      }
    } catch (error) {
      const id = request.kind === 'engine' || request.kind === 'load' ? 0 : request.id;
      this.post({ kind: 'error', id, message: messageOf(error) }, []);
    }
  }

  private async load(request: Request & { kind: 'load' }): Promise<void> {
    const engine = await this.started!;
    engine.load(request.files);
    if (request.probe) engine.probe(request.probe);
    this.engine = engine;
    this.post({ kind: 'loaded', sizes: engine.sizes }, []);
    await this.runWanted();
  }

  private async runWanted(): Promise<void> {
    if (this.busy || !this.engine) return;
    this.busy = true;
    try {
      while (this.wanted || this.beside.some) {
        if (!this.wanted) {
          await this.beside.work(this.engine, () => this.wanted !== null);
          continue;
        }
        const { id, text } = this.wanted;
        const run = await this.run(this.engine, id, text);
        if (!run) continue;
        this.wanted = null;
        this.post({ kind: 'run', id, run, bytes: this.engine.bytes },
                  [run.weights.buffer, run.norms.buffer]);
      }
    } catch (error) {
      const id = this.wanted?.id ?? 0;
      this.wanted = null;
      this.post({ kind: 'error', id, message: messageOf(error) }, []);
    } finally {
      this.busy = false;
    }
  }

  // null: another text was asked for in the meantime
  private async run(engine: Engine, id: number, text: string): Promise<Run | null> {
    const begun = performance.now();
    const tokens = tokensToRun(engine, text);
    engine.start(tokens.map((token) => token.id));
    while (engine.advance() > 0) {
      await turn();
      if (this.wanted?.id !== id) return null;
    }
    return readRun(engine, text, tokens, begun);
  }
}

// What the page shows of the pass that was finished.
function readRun(engine: Engine, text: string, tokens: Token[], begun: number): Run {
  const { num_layers, num_heads } = engine.sizes;
  const count = tokens.length;
  const weights = new Float32Array(num_layers * num_heads * count * count);
  const norms = new Float32Array(num_layers * num_heads * count);
  for (let layer = 0; layer < num_layers; ++layer) {
    weights.set(engine.weights(layer, -1, 0, count), layer * num_heads * count * count);
    norms.set(engine.valueNorms(layer), layer * num_heads * count);
  }
  const { heads, predictions, opening } = engine.report(shownPredictions);
  return { text, tokens, heads, predictions, opening, weights, norms, begun: performance.timeOrigin + begun,
           milliseconds: performance.now() - begun };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
