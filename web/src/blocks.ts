// The data that the program wrote into the page, in elements that no browser runs.
import { checksum } from './checksum.ts';
import type { PageData } from './types.ts';

declare global {
  interface Uint8ArrayConstructor {
    fromBase64?(text: string): Uint8Array;
  }
}

// Of the page's part with this name.
export function fromBase64(text: string, part: string): Uint8Array {
  try {
    return Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : inPieces(text);
  } catch {
    throw damaged(part);
  }
}

const damaged = (part: string) => new Error(`this page is damaged: its part ‘${part}’ cannot be read`);

// check: what the program wrote next to it
export function verify(bytes: Uint8Array, part: string, check: string | undefined): void {
  if (checksum(bytes) !== check) throw damaged(part);
}

// Where a browser has no fromBase64: in pieces, so that no string is longer than one may be.
function inPieces(text: string): Uint8Array {
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  const out = new Uint8Array((text.length / 4) * 3 - padding);
  const piece = 1 << 16; // a multiple of four
  for (let at = 0, to = 0; at < text.length; at += piece) {
    const bytes = atob(text.slice(at, at + piece));
    for (let n = 0; n < bytes.length; ++n) out[to++] = bytes.charCodeAt(n);
  }
  return out;
}

const lacking = (id: string) => new Error(`this page lacks its part ‘${id}’: it was not saved whole`);

// The element is emptied: the page keeps one copy of its data.
export function blockText(id: string): { data: string; check: string | undefined } {
  const element = document.getElementById(id);
  if (!element) throw lacking(id);
  const data = element.textContent!.trim();
  element.textContent = '';
  return { data, check: element.dataset.check };
}

export function block(id: string): Uint8Array {
  const { data, check } = blockText(id);
  const bytes = fromBase64(data, id);
  verify(bytes, id, check);
  return bytes;
}

// Of a file that was cut the last part is lacking, or is the one that was cut.
export function requireBlock(id: string): void {
  if (!document.getElementById(id)) throw lacking(id);
}

export function pageData(): PageData {
  const element = document.getElementById('page-data');
  if (!element) throw new Error('this page lacks its data: it was not saved whole');
  const text = element.textContent!;
  verify(new TextEncoder().encode(text), 'page-data', element.dataset.check);
  return JSON.parse(text) as PageData;
}
