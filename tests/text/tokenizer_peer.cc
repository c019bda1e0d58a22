// Ours beside the tokenizers package: a program that compare_tokenizer.py and bench/tokenizer.py
// talk to. tokenizer_peer FOLDER loads a vocabulary and then answers line by line:
//   ids HEX     the ids of these bytes
//   texts PATH  takes the texts of a file, with a NUL after each; says how many
//   time        encodes all of them once; says seconds and tokens
#include <chrono>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "cephalo/text/bpe.h"
#include "tests/support/files.h"
#include "tests/support/vocabulary.h"

namespace {

using cephalo::Bpe;

std::vector<std::string> read_texts(const std::string& path) {
  std::istringstream content(cephalo::testing::read_bytes(path));
  std::vector<std::string> texts;
  for (std::string text; std::getline(content, text, '\0');) texts.push_back(text);
  return texts;
}

void answer(const Bpe& bpe, const std::string& line, std::vector<std::string>& texts) {
  const std::string command = line.substr(0, line.find(' '));
  const std::string argument = line.substr(std::min(line.size(), command.size() + 1));
  if (command == "ids") {
    for (const auto id : bpe.encode(cephalo::testing::from_hex(argument))) std::cout << id << ' ';
  } else if (command == "texts") {
    texts = read_texts(argument);
    std::cout << texts.size();
  } else if (command == "time") {
    std::size_t tokens = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (const std::string& text : texts) tokens += bpe.encode(text).size();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    std::cout << time.count() << ' ' << tokens;
  }
  std::cout << std::endl;  // now: the other side waits
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const Bpe bpe = Bpe::load(argv[1]);
  std::vector<std::string> texts;
  for (std::string line; std::getline(std::cin, line);) answer(bpe, line, texts);
}
