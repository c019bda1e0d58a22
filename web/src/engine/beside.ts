// Passes beside the one that is shown: a second text, the draws of the probe. They wait until no
// text is being typed, and give way to one between two layers.
import type { Head, Metrics, Run, Token } from '../types.ts';
import { tokensToRun } from './limit.ts';
import type { Engine } from './module.ts';

export interface Probe {
  length: number;
  draws: number;
  seed: number;
}

export type BesideRequest =
  | { kind: 'second'; id: number; text: string }
  | { kind: 'diagnose'; id: number; probe: Probe };

export type BesideAnswer =
  | { kind: 'second'; id: number; run: Run | null; error: string | null }
  | { kind: 'diagnosis'; id: number; done: number; heads: Head[] | null; error: string | null };

interface Work {
  request: BesideRequest;
  drawn: Head[][]; // of the draws that are done
}

type Post = (answer: BesideAnswer, transfer: Transferable[]) => void;

// A mean over draws; null where no row of any counts.
function meanOf(draws: Head[][], index: number): Head {
  const all = draws.map((heads) => heads[index]!);
  const metrics = { ...all[0]!.metrics };
  for (const name of Object.keys(metrics) as (keyof Metrics)[]) {
    const values = all.map((head) => head.metrics[name]).filter((v): v is number => typeof v === 'number');
    (metrics as Record<string, number | null>)[name] =
      values.length === 0 ? null : values.reduce((sum, v) => sum + v, 0) / values.length;
  }
  return { ...all[0]!, labels: [], metrics };
}

export class Beside {
  private waiting: Work[] = [];

  constructor(private readonly post: Post, private readonly turn: () => Promise<void>,
              private readonly read: (engine: Engine, text: string, tokens: Token[], begun: number) => Run) {}

  get some(): boolean {
    return this.waiting.length > 0;
  }

  // A newer request takes the place of an older one of its kind.
  add(request: BesideRequest): void {
    this.waiting = this.waiting.filter((work) => work.request.kind !== request.kind);
    this.waiting.push({ request, drawn: [] });
  }

  // The first that waits, as far as it gets.
  async work(engine: Engine, typed: () => boolean): Promise<void> {
    const work = this.waiting[0]!;
    const givesWay = () => typed() || this.waiting[0] !== work;
    const { request } = work;
    try {
      const done = request.kind === 'second' ? await this.second(engine, request, givesWay)
                                             : await this.diagnose(engine, work, request, givesWay);
      if (!done) return;
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      if (request.kind === 'second') this.post({ kind: 'second', id: request.id, run: null, error: message }, []);
      else this.post({ kind: 'diagnosis', id: request.id, done: 0, heads: null, error: message }, []);
    }
    this.waiting = this.waiting.filter((each) => each !== work);
  }

  // All layers but the last, which the caller takes with what it reads. False: it gave way.
  private async pass(engine: Engine, ids: number[], givesWay: () => boolean): Promise<boolean> {
    engine.start(ids);
    for (let left = engine.sizes.num_layers; left > 1; left = engine.advance()) {
      await this.turn();
      if (givesWay()) return false;
    }
    return true;
  }

  private async second(engine: Engine, request: BesideRequest & { kind: 'second' },
                       givesWay: () => boolean): Promise<boolean> {
    const begun = performance.now();
    const tokens = tokensToRun(engine, request.text);
    if (!(await this.pass(engine, tokens.map((token) => token.id), givesWay))) return false;
    const run = engine.beside(() => this.read(engine, request.text, tokens, begun));
    this.post({ kind: 'second', id: request.id, run, error: null }, [run.weights.buffer, run.norms.buffer]);
    return true;
  }

  private async diagnose(engine: Engine, work: Work, request: BesideRequest & { kind: 'diagnose' },
                         givesWay: () => boolean): Promise<boolean> {
    const draws = engine.probeDraws(request.probe);
    while (work.drawn.length < draws.length) {
      if (!(await this.pass(engine, draws[work.drawn.length]!, givesWay))) return false;
      work.drawn.push(engine.beside(() => engine.report(1).heads));
      const done = work.drawn.length;
      const heads = done < draws.length ? null : work.drawn[0]!.map((_, n) => meanOf(work.drawn, n));
      this.post({ kind: 'diagnosis', id: request.id, done, heads, error: null }, []);
      await this.turn();
    }
    return true;
  }
}
