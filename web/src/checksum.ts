// XXH32, as `xxhsum -H0` prints it and the program writes it next to every part of the page.
const primes = [0x9e3779b1, 0x85ebca77, 0xc2b2ae3d, 0x27d4eb2f, 0x165667b1] as const;
const [prime1, prime2, prime3, prime4, prime5] = primes;

const rotated = (value: number, by: number) => (value << by) | (value >>> (32 - by));

// Words of 32 bits, least significant byte first: as every machine has them that browsers run on.
function wordsOf(bytes: Uint8Array): Int32Array {
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : new Uint8Array(bytes);
  return new Int32Array(aligned.buffer, aligned.byteOffset, aligned.length >> 2);
}

export function checksum(bytes: Uint8Array): string {
  const words = wordsOf(bytes);
  let at = 0;
  let hash: number = prime5;
  if (words.length >= 4) {
    let [a, b, c, d] = [(prime1 + prime2) | 0, prime2 | 0, 0, -prime1 | 0];
    // Without calls: it is run once, before a compiler has taken them out.
    for (const end = words.length - 3; at < end; at += 4) {
      a = (a + Math.imul(words[at]!, prime2)) | 0;
      b = (b + Math.imul(words[at + 1]!, prime2)) | 0;
      c = (c + Math.imul(words[at + 2]!, prime2)) | 0;
      d = (d + Math.imul(words[at + 3]!, prime2)) | 0;
      a = Math.imul((a << 13) | (a >>> 19), prime1);
      b = Math.imul((b << 13) | (b >>> 19), prime1);
      c = Math.imul((c << 13) | (c >>> 19), prime1);
      d = Math.imul((d << 13) | (d >>> 19), prime1);
    }
    hash = rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18);
  }
  hash = (hash + bytes.length) | 0;
  for (; at < words.length; ++at) hash = Math.imul(rotated((hash + Math.imul(words[at]!, prime3)) | 0, 17), prime4);
  for (let n = 4 * words.length; n < bytes.length; ++n) {
    hash = Math.imul(rotated((hash + Math.imul(bytes[n]!, prime5)) | 0, 11), prime1);
  }
  hash = Math.imul(hash ^ (hash >>> 15), prime2);
  hash = Math.imul(hash ^ (hash >>> 13), prime3);
  return ((hash ^ (hash >>> 16)) >>> 0).toString(16).padStart(8, '0');
}
