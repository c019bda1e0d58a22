// Drawing on canvases, in CSS pixels whatever the screen's are.
import { css, type Rgb } from './colour.ts';

export function context(canvas: HTMLCanvasElement, width: number, height: number)
    : CanvasRenderingContext2D {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const to = canvas.getContext('2d')!;
  to.setTransform(w / width, 0, 0, h / height, 0, 0);
  to.clearRect(0, 0, width, height);
  return to;
}

// Lines of 1.2 px every 5 px at 45°: hidden, which is not zero.
export function hatch(to: CanvasRenderingContext2D, colour: string): CanvasPattern {
  const tile = document.createElement('canvas');
  const fine = 4; // pixels of the tile to one of the page
  tile.width = tile.height = 5 * fine;
  const on = tile.getContext('2d')!;
  on.fillStyle = colour;
  on.fillRect(0, 0, 1.2 * fine, 5 * fine);
  const pattern = to.createPattern(tile, 'repeat')!;
  pattern.setTransform(new DOMMatrix().rotate(45).scale(1 / fine));
  return pattern;
}

export interface Map_ {
  weights: Float32Array; // [tokens, tokens]
  count: number;
  colour: (weight: number, row: number) => Rgb;
}

// A causal matrix as an image of at most `side` pixels; where cells are fewer than tokens each
// shows the largest weight that it covers. Hidden cells are left clear.
export function image(map: Map_, side: number): ImageData {
  const { weights, count } = map;
  const cells = Math.min(side, count);
  const scale = side >= count ? Math.max(1, Math.floor(side / count)) : 1;
  const out = new ImageData(cells * scale, cells * scale);
  for (let y = 0; y < cells; ++y) {
    const i0 = Math.floor((y * count) / cells);
    const i1 = Math.floor(((y + 1) * count) / cells);
    for (let x = 0; x <= y; ++x) {
      const j0 = Math.floor((x * count) / cells);
      const j1 = Math.floor(((x + 1) * count) / cells);
      let most = 0;
      for (let i = i0; i < i1; ++i) {
        for (let j = j0; j < j1 && j <= i; ++j) most = Math.max(most, weights[i * count + j]!);
      }
      const [r, g, b] = map.colour(most, i0);
      for (let a = 0; a < scale; ++a) {
        for (let c = 0; c < scale; ++c) {
          const at = ((y * scale + a) * cells * scale + x * scale + c) * 4;
          out.data[at] = r;
          out.data[at + 1] = g;
          out.data[at + 2] = b;
          out.data[at + 3] = 255;
        }
      }
    }
  }
  return out;
}

export function drawThumbnail(canvas: HTMLCanvasElement, map: Map_): void {
  const picture = image(map, 96);
  [canvas.width, canvas.height] = [picture.width, picture.height];
  canvas.getContext('2d')!.putImageData(picture, 0, 0);
}

// Rows of numbers as cells, the largest size in full colour.
export function drawRows(canvas: HTMLCanvasElement, rows: { values: Float32Array; width: number },
                         size: { width: number; height: number },
                         colour: (share: number) => Rgb): void {
  const to = context(canvas, size.width, size.height);
  const { values, width } = rows;
  const count = values.length / width;
  let most = 0;
  for (const value of values) if (Number.isFinite(value)) most = Math.max(most, Math.abs(value));
  const [w, h] = [size.width / width, size.height / count];
  const gap = h >= 4 ? 1 : 0;
  for (let i = 0; i < count; ++i) {
    for (let n = 0; n < width; ++n) {
      to.fillStyle = css(colour(most > 0 ? Math.max(-1, Math.min(1, (values[i * width + n]! / most) * 1.3)) : 0));
      to.fillRect(n * w, i * h, w + 0.3, h - gap);
    }
  }
}
