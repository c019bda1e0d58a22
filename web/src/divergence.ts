// How differently two heads look.

// Of two rows that each add up to 1: from 0 for equal ones to ln 2.
function ofRows(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  a.forEach((p, j) => {
    const q = b[j]!;
    const middle = (p + q) / 2;
    if (p > 0) sum += (p * Math.log(p / middle)) / 2;
    if (q > 0) sum += (q * Math.log(q / middle)) / 2;
  });
  return Math.max(0, sum);
}

// a, b: [count, count] -> the mean over rows of the Jensen–Shannon divergence, in nats. The first
// row sees one key alone and says nothing.
export function divergence(a: Float32Array, b: Float32Array, count: number): number {
  if (count < 2) return 0;
  let sum = 0;
  for (let i = 1; i < count; ++i) {
    sum += ofRows(a.subarray(i * count, (i + 1) * count), b.subarray(i * count, (i + 1) * count));
  }
  return sum / (count - 1);
}
