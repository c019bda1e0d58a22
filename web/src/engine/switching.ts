// Passes under switches, behind messages: the one that is shown, and one head after the other that
// is measured without it. They are left between two layers when something newer is asked for.
import type { HeadSwitch, OffMeans, Switched } from '../types.ts';
import type { Engine } from './module.ts';

export type SwitchingRequest =
  | { kind: 'switched'; id: number; heads: HeadSwitch[]; layer: number }
  | { kind: 'effects'; id: number; heads: number[]; off: OffMeans };

// probability: of the trained model’s next token, without the head
export type SwitchingAnswer =
  | { kind: 'switched'; id: number; heads: HeadSwitch[]; switched: Switched; milliseconds: number }
  | { kind: 'effect'; id: number; index: number; probability: number };

type Post = (answer: SwitchingAnswer, transfer: Transferable[]) => void;
type Shown = SwitchingRequest & { kind: 'switched' };
type Effects = SwitchingRequest & { kind: 'effects' };

const rowsAtOnce = 16; // logits of so many rows are there at a time
const shownPredictions = 5;

export class Switching {
  private shown: Shown | null = null;
  private effects: Effects | null = null;
  private busy = false;
  private finished = ''; // the switches of the pass that the engine keeps

  constructor(private readonly post: Post, private readonly turn: () => Promise<void>) {}

  // Another text: what was asked about the one before is no longer wanted.
  forget(): void {
    this.shown = this.effects = null;
    this.finished = '';
  }

  async receive(engine: Engine, request: SwitchingRequest): Promise<void> {
    if (request.kind === 'switched') this.shown = request;
    else this.effects = { ...request, heads: [...request.heads] };
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.shown || this.effects) {
        if (this.shown) await this.show(engine, this.shown);
        else await this.measure(engine, this.effects!);
      }
    } catch (error) {
      this.forget();
      throw error;
    } finally {
      this.busy = false;
    }
  }

  private async show(engine: Engine, request: Shown): Promise<void> {
    const begun = performance.now();
    const left = () => this.shown !== request;
    const name = JSON.stringify(request.heads);
    if (this.finished !== name) {
      this.finished = '';
      engine.startSwitched('shown', request.heads);
      while (engine.advanceSwitched('shown') > 0) {
        await this.turn();
        if (left()) return;
      }
      this.finished = name;
    }
    const weights = engine.switchedWeights(request.layer);
    const tokens = Math.sqrt(weights.length / engine.sizes.num_heads);
    const changes = new Float32Array(tokens * 2);
    for (let row = 0; row < tokens; row += rowsAtOnce) {
      await this.turn();
      if (left()) return;
      changes.set(engine.rowChanges(row, Math.min(rowsAtOnce, tokens - row)), row * 2);
    }
    const switched = { ...engine.switchReport('shown', shownPredictions), layer: request.layer, weights, changes };
    this.shown = null;
    this.post({ kind: 'switched', id: request.id, heads: request.heads, switched,
                milliseconds: performance.now() - begun }, [weights.buffer, changes.buffer]);
  }

  // The next head of those that are to be measured.
  private async measure(engine: Engine, request: Effects): Promise<void> {
    const index = request.heads[0];
    if (index === undefined) {
      this.effects = null;
      return;
    }
    const { num_heads } = engine.sizes;
    engine.startSwitched('measured', [{ layer: Math.floor(index / num_heads), head: index % num_heads,
                                        scaled: true, temperature: 1, keys: 0, off: request.off }]);
    while (engine.advanceSwitched('measured') > 0) {
      await this.turn();
      if (this.effects !== request || this.shown) return;
    }
    const { trained } = engine.switchReport('measured', 1);
    request.heads.shift();
    this.post({ kind: 'effect', id: request.id, index, probability: trained[0]!.probability }, []);
    await this.turn();
  }
}
