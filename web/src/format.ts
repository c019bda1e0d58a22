const minus = '−';
const noBreak = '\u00a0';

export const counted = (count: number, noun: string) => `${count} ${noun}${count === 1 ? '' : 's'}`;

// Four significant digits, at most four decimals: 56.88, 0.4967, <0.0001
export function number(value: number): string {
  if (value === 0) return '0';
  if (!Number.isFinite(value)) return value < 0 ? `${minus}∞` : '∞';
  const sign = value < 0 ? minus : '';
  const size = Math.abs(value);
  if (size < 0.0001) return `${sign}<0.0001`;
  const decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4;
  return sign + size.toFixed(decimals);
}

// A weight; NaN: the recording left it out.
export const weightText = (weight: number) => (Number.isNaN(weight) ? 'not kept' : number(weight));

export const percent = (share: number) =>
  `${(share * 100).toFixed(share >= 0.0995 ? 0 : 1)}${noBreak}%`;
export const percent1 = (share: number) =>
  share > 0 && share < 0.0005 ? `<0.1${noBreak}%` : `${(share * 100).toFixed(1)}${noBreak}%`;
export const score = (value: number) => value.toFixed(2);
// Weights in small places: .50
export const short = (value: number) => value.toFixed(2).replace(/^0/, '');
