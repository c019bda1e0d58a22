// Colour has four meanings: weight (cividis), chosen (pink), differs (amber), sign (blue–orange).
// The last three but the sign are custom properties of style.css.
export type Rgb = [number, number, number];

const clamp = (v: number) => Math.max(0, Math.min(255, Math.round(v)));
const mix = (a: Rgb, b: Rgb, t: number): Rgb =>
  a.map((v, n) => clamp(v + (b[n]! - v) * t)) as Rgb;

// A polynomial of the cividis map.
export function cividis(t: number): Rgb {
  return [
    -4.54 - t * (35.34 - t * (2381.73 - t * (6402.7 - t * (7024.72 - t * 2710.57)))),
    32.49 + t * (170.73 + t * (52.82 - t * (131.46 - t * (176.58 - t * 67.37)))),
    81.24 + t * (442.36 - t * (2482.43 - t * (6167.24 - t * (6614.94 - t * 2475.67)))),
  ].map(clamp) as Rgb;
}

// A weight from 0 to 1. The low end is blended into the page, and lightness is monotone.
function mixedWeight(w: number, dark: boolean): Rgb {
  if (dark) return mix([14, 22, 38], cividis(w), 0.35 + 0.65 * Math.min(1, w / 0.1));
  const t = Math.min(1, w / 0.3);
  return mix([250, 246, 232], cividis(1 - w),
             0.12 * Math.min(1, 40 * w) + 0.88 * t * t * (3 - 2 * t));
}

const steps = 1024;
const tables: Record<'dark' | 'light', Rgb[]> = { dark: [], light: [] };
for (let n = 0; n <= steps; ++n) {
  tables.dark.push(mixedWeight(n / steps, true));
  tables.light.push(mixedWeight(n / steps, false));
}

export const weightColour = (w: number, dark: boolean): Rgb =>
  tables[dark ? 'dark' : 'light'][Math.round(Math.max(0, Math.min(1, w)) * steps)]!;

// From −1 to 1.
export function signColour(v: number, dark: boolean): Rgb {
  const t = Math.pow(Math.min(1, Math.abs(v)), 0.8);
  return dark ? mix([30, 36, 44], v < 0 ? [74, 148, 255] : [255, 140, 66], t)
              : mix([246, 244, 239], v < 0 ? [29, 95, 203] : [196, 84, 10], t);
}

// Bars beside numbers: never as pale as the page.
export const barColour = (w: number, dark: boolean): Rgb =>
  cividis(dark ? 0.35 + 0.65 * w : 0.62 - 0.62 * w);

export const css = (c: Rgb) => `rgb(${c[0]} ${c[1]} ${c[2]})`;

export function textOn(c: Rgb): string {
  const [r, g, b] = c.map((v) => {
    const s = v / 255;
    return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b! > 0.18 ? '#000' : '#fff';
}
