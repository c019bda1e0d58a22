// The shown weights as files: a picture with real text, a table, an array for NumPy.
import { image } from './canvas.ts';
import { css, textOn, weightColour, type Rgb } from './colour.ts';
import { short } from './format.ts';
import { isByValue, sees, shareOf, shownWeights, switchedRun, visible } from './select.ts';
import { isDark, type State } from './state.ts';
import { nameOf, textOf } from './tokens.ts';
import { sayHead } from './words.ts';

// Says what is in the file, which may be less than what was asked for.
export const fileName = (s: State, ending: string) =>
  `layer-${s.layer}-${s.over ?? `head-${s.head}`}${isByValue(s) ? '-by-value' : ''}${switchedRun(s) ? '-what-if' : ''}.${ending}`;

const quoted = (text: string) => `"${text.replaceAll('"', '""')}"`;
// Nine significant digits tell any two float32 apart.
const digits = (value: number) => String(Number(value.toPrecision(9)));

// As cephalo look --csv writes it: a line per query, what is hidden left empty.
export function csv(s: State): string {
  const { tokens } = s.run!;
  const weights = shownWeights(s);
  const lines = [['query', 'token', ...tokens.keys()].join(',')];
  tokens.forEach((token, i) => {
    const cells = tokens.map((_, j) => (sees(s, i, j) ? digits(weights[i * tokens.length + j]!) : ''));
    lines.push([i, quoted(textOf(token.piece).trim()), ...cells].join(','));
  });
  return `${lines.join('\n')}\n`;
}

// [tokens, tokens], float32, of version 1.0; the numbers begin at a multiple of 64 bytes
export function npy(s: State): Uint8Array {
  const count = s.run!.tokens.length;
  const described = `{'descr': '<f4', 'fortran_order': False, 'shape': (${count}, ${count}), }`;
  const before = 10; // magic, version and the header's size
  const padded = described.padEnd(Math.ceil((before + described.length + 1) / 64) * 64 - before - 1);
  const out = new Uint8Array(before + padded.length + 1 + 4 * count * count);
  const view = new DataView(out.buffer);
  out.set([0x93, ...new TextEncoder().encode('NUMPY'), 1, 0]);
  view.setUint16(8, padded.length + 1, true);
  out.set(new TextEncoder().encode(`${padded}\n`), before);
  shownWeights(s).forEach((w, n) => view.setFloat32(before + padded.length + 1 + 4 * n, w, true));
  return out;
}

const xml = (text: string) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`)
  .replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, '\ufffd');

interface Place {
  left: number;
  top: number;
  cell: number;
  side: number;
  width: number;
  height: number;
}

const smallest = 16; // px of a cell that has a label
const shapesUpTo = 512; // tokens: from there on the cells are one image

function placeOf(count: number): Place {
  const cell = Math.max(1, Math.min(36, Math.floor(900 / count)));
  const side = cell * count;
  const [left, top] = cell >= smallest ? [120, 190] : [60, 130];
  return { left, top, cell, side, width: Math.max(left + side + 30, 620), height: top + side + 70 };
}

// Cells of one colour are one path.
function cells(s: State, p: Place, colour: (w: number, i: number) => Rgb): string {
  const count = s.run!.tokens.length;
  const weights = shownWeights(s);
  if (count > shapesUpTo) {
    const picture = image({ weights, count, colour }, count);
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [picture.width, picture.height];
    canvas.getContext('2d')!.putImageData(picture, 0, 0);
    return `<image x="${p.left}" y="${p.top}" width="${p.side}" height="${p.side}" href="${canvas.toDataURL()}"/>`;
  }
  const gap = p.cell >= 9 ? 1 : 0;
  const paths = new Map<string, string>();
  const size = p.cell - gap;
  for (let i = 0; i < count; ++i) {
    const { first, end } = visible(s, i);
    for (let j = first; j < end; ++j) {
      const fill = css(colour(weights[i * count + j]!, i));
      paths.set(fill, `${paths.get(fill) ?? ''}M${p.left + j * p.cell} ${p.top + i * p.cell}h${size}v${size}h-${size}z`);
    }
  }
  return [...paths].map(([fill, d]) => `<path fill="${fill}" d="${d}"/>`).join('');
}

function numbers(s: State, p: Place, colour: (w: number, i: number) => Rgb): string {
  if (p.cell < 32) return '';
  const count = s.run!.tokens.length;
  const out: string[] = [];
  shownWeights(s).forEach((w, n) => {
    const [i, j] = [Math.floor(n / count), n % count];
    if (!sees(s, i, j) || w < 0.005) return;
    out.push(`<text x="${p.left + (j + 0.5) * p.cell}" y="${p.top + (i + 0.5) * p.cell + 4}" text-anchor="middle" ` +
      `font-size="11" fill="${textOn(colour(w, i))}">${w >= 0.995 ? '1.0' : short(w)}</text>`);
  });
  return out.join('');
}

function labels(s: State, p: Place): string {
  if (p.cell < smallest) return '';
  return s.run!.tokens.map((token, i) => {
    const name = xml(nameOf(token, i));
    const middle = (i + 0.5) * p.cell;
    return `<text x="${p.left - 8}" y="${p.top + middle + 4}" text-anchor="end">${name} ${i}</text>` +
      `<text transform="translate(${p.left + middle + 4} ${p.top - 8}) rotate(-90)">${i} ${name}</text>`;
  }).join('');
}

// Bands of hatching where a query does not see: hidden, which is not zero.
function hidden(s: State, p: Place): string {
  const count = s.run!.tokens.length;
  let d = '';
  const band = (i: number, from: number, to: number) => {
    if (to > from) d += `M${p.left + from * p.cell} ${p.top + i * p.cell}h${(to - from) * p.cell}v${p.cell}h-${(to - from) * p.cell}z`;
  };
  for (let i = 0; i < count; ++i) {
    const { first, end } = visible(s, i);
    band(i, 0, first);
    band(i, end, count);
  }
  return `<path fill="url(#hidden)" d="${d}"/>`;
}

export function svg(s: State): string {
  const count = s.run!.tokens.length;
  const p = placeOf(count);
  const dark = isDark(s);
  const style = getComputedStyle(document.documentElement);
  const colourOf = (name: string) => style.getPropertyValue(name).trim();
  const share = shareOf(s, shownWeights(s));
  const colour = (w: number, i: number) => weightColour(share(w, i), dark);
  const text = (x: number, y: number, words: string, more = '') => `<text x="${x}" y="${y}" ${more}>${xml(words)}</text>`;
  const { headline, sentence } = sayHead(s);
  const asked = switchedRun(s) ? ', under what-if switches' : '';
  const named = `layer ${s.layer} ${s.over ? `${s.over} of its heads` : `head ${s.head}`}${isByValue(s) ? ', weighed by value' : ''}${asked}`;
  const scale = { fixed: '', row: ', of each row’s largest', log: ', logarithmic' }[s.scale];
  const below = p.top + p.side + 28;
  const bar = Array.from({ length: 48 }, (_, n) =>
    `<rect x="${p.left + 14 + n * 2}" y="${below - 9}" width="2.2" height="9" fill="${css(weightColour(n / 47, dark))}"/>`).join('');
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${p.width}" height="${p.height}" viewBox="0 0 ${p.width} ${p.height}" ` +
    `font-family="system-ui, sans-serif" font-size="12" fill="${colourOf('--ink2')}">` +
    `<defs><pattern id="hidden" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
    `<rect width="1.2" height="5" fill="${colourOf('--ink')}" fill-opacity=".15"/></pattern></defs>` +
    `<rect width="${p.width}" height="${p.height}" fill="${colourOf('--bg')}"/>` +
    text(20, 34, headline, `font-size="20" font-weight="650" fill="${colourOf('--ink')}"`) + text(20, 56, sentence) +
    text(20, 76, `${s.data.model.name}, ${named}: ${short60(s.run!.text)}`) +
    cells(s, p, colour) + hidden(s, p) + numbers(s, p, colour) + labels(s, p) +
    text(p.left, below, '0') + bar + text(p.left + 118, below, `1${scale}`) +
    text(p.left, below + 22, `row = query, looks at → column = key; hatched = hidden`) + '</svg>';
}

const short60 = (words: string) => (words.length > 60 ? `${words.slice(0, 59)}…` : words);

// Drawn from the SVG, so that both say the same.
export async function png(s: State, scale: number): Promise<Blob> {
  const address = URL.createObjectURL(new Blob([svg(s)], { type: 'image/svg+xml' }));
  try {
    const picture = new Image();
    picture.src = address;
    await picture.decode();
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [picture.width * scale, picture.height * scale];
    canvas.getContext('2d')!.drawImage(picture, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) =>
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('the browser has no room for a picture of this size')))));
  } finally {
    URL.revokeObjectURL(address);
  }
}

export function download(name: string, content: Blob): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // once the browser has saved it
}
