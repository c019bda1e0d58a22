// A screenshot with 256 colours: a third of the bytes, and hard to tell apart.
import { deflateSync, inflateSync } from 'node:zlib';

const table = Array.from({ length: 256 }, (_, n) => {
  let c = n;
  for (let k = 0; k < 8; ++k) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1;
  return c >>> 0;
});
function crc32(bytes) {
  let c = 0xffffffff;
  for (const byte of bytes) c = table[(c ^ byte) & 255] ^ (c >>> 8);
  return (c ^ 0xffffffff) >>> 0;
}

function chunk(type, data) {
  const out = Buffer.alloc(12 + data.length);
  out.writeUInt32BE(data.length, 0);
  out.write(type, 4, 'latin1');
  data.copy(out, 8);
  out.writeUInt32BE(crc32(out.subarray(4, 8 + data.length)), 8 + data.length);
  return out;
}

// What Chromium writes: 8 bits, RGB or RGBA, not interlaced -> RGB rows
function decode(png) {
  const [width, height] = [png.readUInt32BE(16), png.readUInt32BE(20)];
  const depth = png[25] === 6 ? 4 : 3;
  if (png[24] !== 8 || ![2, 6].includes(png[25]) || png[28] !== 0) throw new Error('not a screenshot of Chromium’s');
  const parts = [];
  for (let at = 8; at < png.length; at += 12 + png.readUInt32BE(at)) {
    if (png.toString('latin1', at + 4, at + 8) === 'IDAT') parts.push(png.subarray(at + 8, at + 8 + png.readUInt32BE(at)));
  }
  const raw = inflateSync(Buffer.concat(parts));
  const stride = width * depth;
  const rows = Buffer.alloc(height * stride);
  for (let y = 0; y < height; ++y) {
    const filter = raw[y * (stride + 1)];
    for (let x = 0; x < stride; ++x) {
      const a = x >= depth ? rows[y * stride + x - depth] : 0;
      const b = y > 0 ? rows[(y - 1) * stride + x] : 0;
      const c = x >= depth && y > 0 ? rows[(y - 1) * stride + x - depth] : 0;
      const [pa, pb, pc] = [Math.abs(b - c), Math.abs(a - c), Math.abs(a + b - 2 * c)];
      const paeth = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
      rows[y * stride + x] = raw[y * (stride + 1) + 1 + x] + [0, a, b, (a + b) >> 1, paeth][filter];
    }
  }
  const pixels = Array.from({ length: width * height }, (_, n) => (rows[n * depth] << 16) | (rows[n * depth + 1] << 8) | rows[n * depth + 2]);
  return { width, height, pixels };
}

const channel = (colour, n) => (colour >> (16 - 8 * n)) & 255;

// Median cut: the box whose longest side holds most pixels is halved until there are 256.
function palette(counts) {
  const boxes = [[...counts.keys()]];
  const extent = (box, n) => {
    let [least, most] = [255, 0];
    for (const colour of box) [least, most] = [Math.min(least, channel(colour, n)), Math.max(most, channel(colour, n))];
    return most - least;
  };
  const weigh = (box) => box.reduce((sum, colour) => sum + counts.get(colour), 0);
  const described = (box) => {
    const extents = [0, 1, 2].map((n) => extent(box, n));
    const longest = extents.indexOf(Math.max(...extents));
    return { box, longest, score: box.length > 1 ? extents[longest] * Math.sqrt(weigh(box)) : 0 };
  };
  const all = boxes.map(described);
  while (all.length < 256) {
    all.sort((a, b) => a.score - b.score);
    const { box, longest, score } = all.pop();
    if (score === 0) {
      all.push({ box, longest, score });
      break;
    }
    box.sort((a, b) => channel(a, longest) - channel(b, longest));
    const half = weigh(box) / 2;
    let at = 0;
    for (let sum = 0; at < box.length - 1 && sum < half; ++at) sum += counts.get(box[at]);
    all.push(described(box.slice(0, Math.max(1, at))), described(box.slice(Math.max(1, at))));
  }
  return all.map(({ box }) => box);
}

export function withPalette(png) {
  const { width, height, pixels } = decode(png);
  const counts = new Map();
  for (const colour of pixels) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  const boxes = palette(counts);
  const indexOf = new Map();
  const colours = Buffer.alloc(boxes.length * 3);
  boxes.forEach((box, index) => {
    const total = box.reduce((sum, colour) => sum + counts.get(colour), 0);
    for (let n = 0; n < 3; ++n) {
      colours[3 * index + n] = Math.round(box.reduce((sum, colour) => sum + channel(colour, n) * counts.get(colour), 0) / total);
    }
    for (const colour of box) indexOf.set(colour, index);
  });
  const rows = Buffer.alloc(height * (width + 1));
  pixels.forEach((colour, n) => { rows[Math.floor(n / width) * (width + 1) + 1 + (n % width)] = indexOf.get(colour); });
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 3, 0, 0, 0], 8);
  return Buffer.concat([png.subarray(0, 8), chunk('IHDR', header), chunk('PLTE', colours),
                        chunk('IDAT', deflateSync(rows, { level: 9 })), chunk('IEND', Buffer.alloc(0))]);
}
