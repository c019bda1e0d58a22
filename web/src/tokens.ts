import type { Token } from './types.ts';

// GPT-2's files write each byte as a visible character: those that Latin-1 shows stand for
// themselves, the others for U+0100 onwards, in order.
const byteOf = new Map<string, number>();
{
  let next = 0x100;
  for (let byte = 0; byte < 256; ++byte) {
    const shown = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    byteOf.set(String.fromCodePoint(shown ? byte : next++), byte);
  }
}

// The text of a piece; half a character is shown by its bytes.
export function textOf(piece: string): string {
  const bytes = Uint8Array.from(piece, (c) => byteOf.get(c) ?? 0x3f);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return Array.from(bytes, (b) => `\\x${b.toString(16).padStart(2, '0')}`).join('');
  }
}

const beginning = '<|endoftext|>';
const space: Record<string, string> = { '\n': '⏎', '\t': '⇥', ' ': '␣', '\r': '␍' };

// On a chip: without the space before a word; space alone can be seen.
export function chipText(token: Token, place: number): string {
  const text = textOf(token.piece);
  if (text === beginning) return place === 0 ? 'begin' : 'end';
  const trimmed = text.trim();
  if (trimmed !== '') return trimmed;
  return Array.from(text, (c) => space[c] ?? c).join('') || `#${token.id}`;
}

const isPunctuation = (text: string) => /^[^\p{L}\p{N}\s⏎⇥␣␍]+$/u.test(text);

// In a sentence and on axes: punctuation is quoted.
export function nameOf(token: Token, place: number): string {
  const text = chipText(token, place);
  return isPunctuation(text) && textOf(token.piece) !== beginning ? `“${text}”` : text;
}

// Is the second of two texts in a row the rest of a word? Not after a space or the beginning of a text.
function continues(before: string, text: string): boolean {
  return before !== beginning && text !== beginning && !/\s$/.test(before) && !/^\s/.test(text);
}

// A token that may come after these: one that continues a word says so.
export function nextName(token: Token, tokens: Token[]): string {
  const text = textOf(token.piece);
  if (text === beginning) return 'end of text';
  const trimmed = chipText(token, 1);
  if (isPunctuation(trimmed)) return `“${trimmed}”`;
  return continues(textOf(tokens[tokens.length - 1]!.piece), text) ? `…${trimmed}` : trimmed;
}

// Does a token begin a word? Pieces of one word touch.
export function beginsWord(tokens: Token[], place: number): boolean {
  return place === 0 || !continues(textOf(tokens[place - 1]!.piece), textOf(tokens[place]!.piece));
}
