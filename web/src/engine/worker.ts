import { Host, type Request } from './host.ts';

const scope = self as unknown as {
  postMessage(message: unknown, transfer: Transferable[]): void;
  onmessage: ((event: MessageEvent<Request>) => void) | null;
};
const host = new Host((answer, transfer) => scope.postMessage(answer, transfer));
scope.onmessage = (event) => void host.receive(event.data);
