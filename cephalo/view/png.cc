#include "cephalo/view/png.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "cephalo/core/fail.h"

// PNG: ISO/IEC 15948; its data are a zlib stream (RFC 1950) of DEFLATE (RFC 1951).
namespace cephalo {
namespace {

constexpr std::int64_t kLargestSide = 65'535;

// Bits of a DEFLATE stream, the lowest of a byte first.
class BitWriter {
 public:
  explicit BitWriter(std::string& out) : out_(out) {}

  void put(std::uint32_t bits, int count) {
    waiting_ |= static_cast<std::uint64_t>(bits) << filled_;
    filled_ += count;
    for (; filled_ >= 8; filled_ -= 8, waiting_ >>= 8) out_ += static_cast<char>(waiting_ & 0xFF);
  }
  // Huffman codes begin with their highest bit.
  void put_code(std::uint32_t code, int count) {
    std::uint32_t turned = 0;
    for (int bit = 0; bit < count; ++bit) turned |= ((code >> bit) & 1U) << (count - 1 - bit);
    put(turned, count);
  }
  void finish() {
    if (filled_ > 0) put(0, 8 - filled_);
  }

 private:
  std::string& out_;
  std::uint64_t waiting_ = 0;
  int filled_ = 0;
};

// The fixed code for a byte (0–255), the end of the block (256) or a length (257–285).
void put_symbol(BitWriter& bits, std::uint32_t symbol) {
  if (symbol < 144) {
    bits.put_code(0x30 + symbol, 8);
  } else if (symbol < 256) {
    bits.put_code(0x190 + symbol - 144, 9);
  } else if (symbol < 280) {
    bits.put_code(symbol - 256, 7);
  } else {
    bits.put_code(0xC0 + symbol - 280, 8);
  }
}

// Lengths and distances fall into classes of growing size: a class, then a place in it.
struct Class {
  std::uint32_t number;
  std::uint32_t place;
  int place_bits;
};

// `per_size`: how many classes have the same number of place bits, after the first of one each.
Class class_of(std::uint32_t value, std::uint32_t per_size) {
  std::uint32_t number = 0;
  std::uint32_t begin = 0;
  for (int place_bits = 0;; ++place_bits) {
    const std::uint32_t classes = place_bits == 0 ? 2 * per_size : per_size;
    const std::uint32_t size = 1U << place_bits;
    if (value < begin + classes * size) {
      const std::uint32_t within = value - begin;
      return {number + within / size, within % size, place_bits};
    }
    number += classes;
    begin += classes * size;
  }
}

void put_match(BitWriter& bits, std::uint32_t length, std::uint32_t distance) {
  constexpr std::uint32_t kLongest = 258;  // has a class of its own
  const Class l = length == kLongest ? Class{28, 0, 0} : class_of(length - 3, 4);
  put_symbol(bits, 257 + l.number);
  bits.put(l.place, l.place_bits);
  const Class d = class_of(distance - 1, 2);
  bits.put_code(d.number, 5);
  bits.put(d.place, d.place_bits);
}

// One block with the fixed codes. The last place of every three bytes is remembered; what follows
// there is compared.
void deflate(std::span<const std::uint8_t> data, std::string& out) {
  constexpr std::size_t kWindow = 32'768;
  constexpr std::size_t kLongest = 258;
  constexpr std::size_t kNone = SIZE_MAX;
  std::vector<std::size_t> last(1U << 15, kNone);
  const auto hash = [&](std::size_t at) {
    const std::uint32_t three = data[at] | static_cast<std::uint32_t>(data[at + 1]) << 8 |
                                static_cast<std::uint32_t>(data[at + 2]) << 16;
    return (three * 2'654'435'761U) >> 17;
  };
  BitWriter bits(out);
  bits.put(1, 1);  // the last block
  bits.put(1, 2);  // fixed codes
  for (std::size_t at = 0; at < data.size();) {
    std::size_t length = 0;
    std::size_t from = kNone;
    if (at + 3 <= data.size()) {
      from = std::exchange(last[hash(at)], at);
      const bool near = from != kNone && at - from <= kWindow;
      const std::size_t most = std::min(kLongest, data.size() - at);
      while (near && length < most && data[from + length] == data[at + length]) ++length;
    }
    if (length < 3) {
      put_symbol(bits, data[at++]);
    } else {
      put_match(bits, static_cast<std::uint32_t>(length), static_cast<std::uint32_t>(at - from));
      at += length;
    }
  }
  put_symbol(bits, 256);
  bits.finish();
}

void put_big_endian(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((value >> shift) & 0xFF);
}

std::uint32_t adler32(std::span<const std::uint8_t> data) {
  constexpr std::uint32_t kModulus = 65'521;
  std::uint32_t a = 1;
  std::uint32_t b = 0;
  for (const std::uint8_t byte : data) {
    a = (a + byte) % kModulus;
    b = (b + a) % kModulus;
  }
  return b << 16 | a;
}

std::uint32_t crc32(std::string_view data) {
  static const std::array<std::uint32_t, 256> kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t n = 0; n < 256; ++n) {
      std::uint32_t c = n;
      for (int k = 0; k < 8; ++k) c = (c & 1U) != 0 ? 0xEDB88320U ^ (c >> 1) : c >> 1;
      table[n] = c;
    }
    return table;
  }();
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : data) crc = kTable[(crc ^ static_cast<std::uint8_t>(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

void put_chunk(std::string& out, std::string_view type, std::string_view data) {
  put_big_endian(out, static_cast<std::uint32_t>(data.size()));
  const std::string body = std::string(type) + std::string(data);
  out += body;
  put_big_endian(out, crc32(body));
}

std::string zlib_stream(std::span<const std::uint8_t> data) {
  std::string out = "\x78\x01";  // a window of 32 KiB
  deflate(data, out);
  put_big_endian(out, adler32(data));
  return out;
}

}  // namespace

std::string encode_png(std::int64_t width, std::int64_t height, std::span<const std::uint8_t> rgb) {
  require(width > 0 && height > 0 && width <= kLargestSide && height <= kLargestSide,
          "encode_png: {} x {} pixels; both must be from 1 to {}", width, height, kLargestSide);
  require(std::ssize(rgb) == 3 * width * height, "encode_png: {} bytes for {} x {} pixels",
          rgb.size(), width, height);
  std::string header;
  put_big_endian(header, static_cast<std::uint32_t>(width));
  put_big_endian(header, static_cast<std::uint32_t>(height));
  header += std::string("\x08\x02\x00\x00\x00", 5);  // 8 bits, red green blue, no interlace

  // Each row begins with how it was filtered: not at all.
  std::vector<std::uint8_t> rows;
  const auto row_bytes = static_cast<std::size_t>(3 * width);
  rows.reserve(static_cast<std::size_t>(height) * (row_bytes + 1));
  for (std::int64_t y = 0; y < height; ++y) {
    const auto row = rgb.subspan(static_cast<std::size_t>(y) * row_bytes, row_bytes);
    rows.push_back(0);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  std::string png = "\x89PNG\r\n\x1a\n";
  put_chunk(png, "IHDR", header);
  put_chunk(png, "IDAT", zlib_stream(rows));
  put_chunk(png, "IEND", "");
  return png;
}

}  // namespace cephalo
