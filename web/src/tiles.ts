// Pooled maps: bytes of a lower triangle, each the square root of the largest weight of its cell.
import type { Rgb } from './colour.ts';
import type { Label, Run, Tiles } from './types.ts';

const weightOf = Float32Array.from({ length: 256 }, (_, byte) => (byte / 255) ** 2);

const triangle = (cells: number) => (cells * (cells + 1)) / 2;

// Tokens [first, end) that cell n of a side stands for.
export function tokensOf(run: Run, n: number): [number, number] {
  const count = run.tokens.length;
  const { cells } = run.pooled!;
  return [Math.ceil((n * count) / cells), Math.ceil(((n + 1) * count) / cells)];
}
export const cellOf = (run: Run, token: number) =>
  Math.floor((token * run.pooled!.cells) / run.tokens.length);

// "largest of 8 × 8"; "" where a cell is a token
export function poolingOf(run: Run): string {
  const { length } = run.tokens;
  const most = Math.ceil(length / run.pooled!.cells);
  return most === 1 ? '' : `largest of ${length % run.pooled!.cells === 0 ? '' : 'up to '}${most} × ${most}`;
}

// A view, not a copy.
export function tileOf({ cells, tiles }: Tiles, index: number): Uint8Array {
  const size = triangle(cells);
  return tiles.subarray(index * size, (index + 1) * size);
}

// The same maps in at most `most` cells on a side, each the largest of what it covers.
export function shrunk(from: Tiles, most: number): Tiles {
  const step = Math.ceil(from.cells / most);
  const cells = Math.ceil(from.cells / step);
  const heads = from.tiles.length / triangle(from.cells);
  const tiles = new Uint8Array(heads * triangle(cells));
  for (let head = 0, n = 0; head < heads; ++head) {
    for (let y = 0; y < from.cells; ++y) {
      const row = head * triangle(cells) + triangle(Math.floor(y / step));
      for (let x = 0; x <= y; ++x, ++n) {
        const at = row + Math.floor(x / step);
        if (from.tiles[n]! > tiles[at]!) tiles[at] = from.tiles[n]!;
      }
    }
  }
  return { cells, tiles };
}

// Over the heads of a layer: their largest, or the mean of what their cells show.
export function tileOver(run: Run, layer: number, numHeads: number, kind: 'mean' | 'max'): Uint8Array {
  const out = new Uint8Array(triangle(run.pooled!.cells));
  const sums = new Float32Array(out.length);
  for (let h = 0; h < numHeads; ++h) {
    tileOf(run.pooled!, layer * numHeads + h).forEach((byte, n) => {
      if (kind === 'max') out[n] = Math.max(out[n]!, byte);
      else sums[n]! += weightOf[byte]! / numHeads;
    });
  }
  return kind === 'max' ? out : out.map((_, n) => Math.round(255 * Math.sqrt(sums[n]!)));
}

// Pairs that a label's score counts, by walking over them: there are far fewer than pairs of tokens.
function forCounted(run: Run, label: Label, visit: (i: number, j: number) => void): void {
  const places = new Map<number, number[]>(); // of each id, so far
  run.tokens.forEach(({ id }, i) => {
    const before = places.get(id) ?? [];
    if (i >= 1 && label === 'previous') visit(i, i - 1);
    if (i >= 1 && label === 'current') visit(i, i);
    if (i >= 1 && label === 'sink') visit(i, 0);
    if (label === 'duplicate') before.forEach((j) => visit(i, j));
    if (label === 'induction') before.forEach((j) => j + 1 < i && visit(i, j + 1));
    places.set(id, before);
    before.push(i);
  });
}

const fadedTo = 56; // of 255

// Cells in which nothing counts fade: they are too small for an outline.
export function fadeOthers(picture: ImageData, run: Run, label: Label): void {
  const { cells } = run.pooled!;
  const counts = new Uint8Array(cells * cells);
  forCounted(run, label, (i, j) => { counts[cellOf(run, i) * cells + cellOf(run, j)] = 1; });
  counts.forEach((some, at) => {
    if (!some && picture.data[at * 4 + 3]! > 0) picture.data[at * 4 + 3] = fadedTo;
  });
}

// A colour as the four bytes of a pixel.
const pixel = ([r, g, b]: Rgb) => (255 << 24) | (b << 16) | (g << 8) | r;

// One pixel for each cell; hidden ones are left clear. perRow: a colour depends on the largest weight
// of its row, too.
export function tileImage(tile: Uint8Array, cells: number, colour: (weight: number, largest: number) => Rgb,
                          perRow = false): ImageData {
  const out = new ImageData(cells, cells);
  const pixels = new Int32Array(out.data.buffer);
  const palette = new Int32Array(256);
  const fill = (largest: number) => weightOf.forEach((weight, byte) => { palette[byte] = pixel(colour(weight, largest)); });
  if (!perRow) fill(1);
  for (let y = 0, n = 0; y < cells; n += ++y) {
    const row = tile.subarray(n, n + y + 1);
    if (perRow) fill(weightOf[row.reduce((most, byte) => Math.max(most, byte), 0)]!);
    for (let x = 0; x <= y; ++x) pixels[y * cells + x] = palette[row[x]!]!;
  }
  return out;
}

export function drawTile(canvas: HTMLCanvasElement, picture: ImageData): void {
  [canvas.width, canvas.height] = [picture.width, picture.height];
  canvas.getContext('2d')!.putImageData(picture, 0, 0);
}
