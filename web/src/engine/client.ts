import workerCode from 'worker:code';
import type { HeadSwitch, OffMeans } from '../types.ts';
import type { Probe } from './beside.ts';
import { Host, type Answer, type Request } from './host.ts';
import type { RecordedWish } from './recorded.ts';

// Without `id`: the client counts.
type Wish = { kind: 'run'; text: string } | { kind: 'steps'; layer: number; head: number }
  | { kind: 'switched'; heads: HeadSwitch[]; layer: number }
  | { kind: 'effects'; heads: number[]; off: OffMeans }
  | { kind: 'second'; text: string }
  | { kind: 'diagnose'; probe: Probe }
  | RecordedWish;

// The engine as the page sees it: in a worker made of a blob, and where that is forbidden in the
// page itself.
export class Client {
  private send: (request: Request, transfer?: Transferable[]) => void;
  private count = 0;
  // Until the worker has answered once it may still fail to start; from then on none is kept.
  private unanswered: Request[] | null = [];
  inWorker = true;

  constructor(private readonly answered: (answer: Answer) => void) {
    try {
      const address = URL.createObjectURL(new Blob([workerCode], { type: 'text/javascript' }));
      const worker = new Worker(address);
      worker.onmessage = (event: MessageEvent<Answer>) => {
        this.unanswered = null;
        this.answered(event.data);
      };
      worker.onerror = () => this.failed();
      this.send = (request, transfer = []) => {
        this.unanswered?.push(request);
        worker.postMessage(request, transfer);
      };
    } catch {
      this.send = () => {};
      this.moveHere([]);
    }
  }

  // Answered by `started`.
  start(engine: Uint8Array): void {
    this.send({ kind: 'engine', engine });
  }

  // After `started`: the files move to a worker that is known to work.
  load(request: Request & { kind: 'load' }): void {
    const { config, parameters, vocab, merges } = request.files;
    this.send(request, [config.buffer, parameters.buffer, vocab.buffer, merges.buffer]);
  }

  ask(wish: Wish): number {
    const id = ++this.count;
    this.send({ ...wish, id } as Request);
    return id;
  }

  private failed(): void {
    if (this.unanswered) this.moveHere(this.unanswered);
    else if (this.inWorker) this.answered({ kind: 'error', id: 0, message: 'the engine stopped: load this page again' });
  }

  private moveHere(waiting: Request[]): void {
    this.inWorker = false;
    this.unanswered = null;
    const host = new Host((answer) => this.answered(answer));
    this.send = (request) => void host.receive(request);
    for (const request of waiting) this.send(request);
  }
}
