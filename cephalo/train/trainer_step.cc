// One step of a trainer: shards, their sum over threads and processes, and what it changes.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "cephalo/core/cpu.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/side_by_side.h"
#include "cephalo/linear/ops.h"
#include "cephalo/train/loss.h"
#include "cephalo/train/trainer_state.h"

namespace cephalo {
namespace {

// Rows of one pass: what is read and what is to be predicted.
struct Batch {
  Tensor ids;      // [batch, tokens]
  Tensor targets;  // [batch · tokens]

  Batch(dim_t batch, dim_t tokens)
      : ids(Tensor::empty({batch, tokens}, DType::i64)),
        targets(Tensor::empty({batch * tokens}, DType::i64)),
        row(static_cast<std::size_t>(tokens) + 1) {}

  void fill(const RowSource& source, std::int64_t first_row) {
    const dim_t tokens = ids.dim(1);
    for (dim_t b = 0; b < ids.dim(0); ++b) {
      source(first_row + b, row);
      auto* read = ids.mutable_data_as<std::int64_t>() + b * tokens;
      auto* wanted = targets.mutable_data_as<std::int64_t>() + b * tokens;
      for (dim_t t = 0; t < tokens; ++t) {
        read[t] = row[static_cast<std::size_t>(t)];
        wanted[t] = row[static_cast<std::size_t>(t) + 1];
      }
    }
  }

  TensorView targets_of(dim_t first, const TensorView& logits) const {
    return targets.slice(0, first, first + logits.dim(0));
  }

  std::vector<std::int64_t> row;  // [tokens + 1]
};

// Something of each thread's own.
const void* this_thread() {
  static thread_local const char here = 0;
  return &here;
}

// Gradients of the shards of one wave on their way into sums. Whoever is the last to have a layer's
// gradients adds them, while the others go on; and the thread that began the wave sends what is
// added up, because it alone works with the world.
class WaveSums {
 public:
  WaveSums(const ShardWave& wave, const std::vector<GptGradients>& sums)
      : wave_(wave),
        sums_(sums),
        arrived_(sums.front().tensors().size()),
        whole_(sums.front().tensors().size()) {}

  // After the last wave sums are sent.
  void send_to(GradientExchange& exchange, const std::vector<ShardNode>& nodes) {
    exchange_ = &exchange;
    nodes_ = &nodes;
  }

  // A shard has its gradients of the parameters first .. end.
  void done(std::size_t first, std::size_t end) {
    if (arrived_[first].fetch_add(1, std::memory_order_acq_rel) + 1 == wave_.shards.size()) {
      std::vector<MutableTensorView> terms(sums_.size());
      for (std::size_t k = first; k < end; ++k) {
        for (std::size_t b = 0; b < sums_.size(); ++b) terms[b] = sums_[b].tensors()[k];
        ops::add_tree(terms, wave_.additions);
      }
      whole_[first].store(end, std::memory_order_release);
    }
    if (this_thread() == owner_) send_whole();
  }

  void send_whole() {
    if (exchange_ == nullptr) return;
    for (std::size_t first = 0; first < whole_.size(); ++first) {
      const std::size_t end = whole_[first].exchange(0, std::memory_order_acquire);
      if (end > 0) exchange_->send(first, end, *nodes_, sums_);
    }
  }

 private:
  const ShardWave& wave_;
  const std::vector<GptGradients>& sums_;
  GradientExchange* exchange_ = nullptr;
  const std::vector<ShardNode>* nodes_ = nullptr;
  const void* owner_ = this_thread();
  // By the first parameter of those that are told together.
  std::vector<std::atomic<std::size_t>> arrived_;  // shards that have them
  std::vector<std::atomic<std::size_t>> whole_;    // where those end that are added and not sent
};

std::vector<Share> shares_in_bytes(dim_t count, int processes) {
  constexpr dim_t kItem = sizeof(double);
  std::vector<Share> shares;
  for (int r = 0; r < processes; ++r) {
    const Share share = share_of(count, r, processes);
    shares.push_back({share.begin * kItem, share.end * kItem});
  }
  return shares;
}

// numbers: of which each process has its share -> all of them
void gather_numbers(World& world, std::vector<double>& numbers) {
  world.gather(std::as_writable_bytes(std::span(numbers)),
               shares_in_bytes(std::ssize(numbers), world.size()));
}

Share own_share(const World& world, dim_t count) {
  return share_of(count, world.rank(), world.size());
}

// Shards at the same time, one thread each; 1 where memory does not allow it.
dim_t beside_of(const GptOptions& model, const TrainerOptions& o, dim_t shards, int threads) {
  const dim_t beside = shards_beside(shards, threads);
  const dim_t pass = memory_bytes(model, o.batch / o.shards, o.context_length).pass;
  return checked_mul(beside, pass) <= physical_memory() / 2 ? beside : 1;
}

}  // namespace

Trainer::State::State(Gpt& the_model, RowSource the_rows, const TrainerOptions& the_options,
                      World* the_world)
    : model(the_model),
      rows(std::move(the_rows)),
      alone(the_world == nullptr ? world_of_one() : nullptr),
      world(the_world == nullptr ? *alone : *the_world),
      parameters(the_model.parameters()),
      parts(make_parts(parameters, world.size())) {
  for (const Part& part : parts) {
    if (part.owner != world.rank()) continue;
    own.push_back(part);
    AdamWState& moments = adamw.emplace_back();
    const DType dtype = parameters[part.parameter].value.dtype();
    moments.mean = Tensor::zeros({part.elements.count()}, dtype);
    moments.mean_square = Tensor::zeros({part.elements.count()}, dtype);
  }
  set_options(the_options);
}

void Trainer::State::check_processes(const TrainerOptions& changed) const {
  require(world.size() <= changed.shards,
          "Trainer: {} processes for {} shards; at most one for each can work", world.size(),
          changed.shards);
}

void Trainer::State::set_options(const TrainerOptions& changed) {
  check_processes(changed);
  options = changed;
  exchange.emplace(world, parts, options.shards, model.options().dtype);
}

void Trainer::State::train_wave(const ShardSchedule& schedule, const ShardWave& wave,
                                std::vector<double>& losses) {
  const dim_t rows_each = options.batch / options.shards;
  const dim_t all = options.accumulate * options.batch * options.context_length;
  std::vector<Batch> batches;
  for (std::size_t k = 0; k < wave.shards.size(); ++k) {
    batches.emplace_back(rows_each, options.context_length);
  }
  WaveSums into(wave, sums);
  if (&wave == &schedule.waves.back()) into.send_to(*exchange, schedule.nodes);
  for (dim_t pass = 0; pass < options.accumulate; ++pass) {
    const auto train_shard = [&](dim_t k) {
      const ShardNode& shard = wave.shards[static_cast<std::size_t>(k)];
      const Batch& batch = batches[static_cast<std::size_t>(k)];
      GptGradients& to = sums[shard.buffer];
      if (pass == 0) to.zero();
      PassOptions how;
      how.call = static_cast<std::uint64_t>(progress.passes + pass);
      how.workspace = &workspaces[static_cast<std::size_t>(k)];
      if (options.shards > 1) how.batch = {shard.shards.begin * rows_each, options.batch};
      if (pass + 1 == options.accumulate) {
        how.on_gradients = [&](std::size_t first, std::size_t end) { into.done(first, end); };
      }
      losses[static_cast<std::size_t>(shard.shards.begin)] += model.train_pass(
          batch.ids,
          [&](dim_t first, const MutableTensorView& logits) {
            return cross_entropy_share(logits, batch.targets_of(first, logits), all, logits);
          },
          to, how);
    };
    for (std::size_t k = 0; k < batches.size(); ++k) {
      batches[k].fill(
          rows, progress.rows + pass * options.batch + wave.shards[k].shards.begin * rows_each);
    }
    if (wave.shards.size() == 1) {
      train_shard(0);  // with all threads
    } else {
      side_by_side(std::ssize(wave.shards), train_shard);
    }
  }
  into.send_whole();
}

double Trainer::State::add_gradients() {
  const Share mine = own_share(world, options.shards);
  const ShardSchedule schedule =
      make_schedule(mine, beside_of(model.options(), options, mine.count(), threads()));
  while (sums.size() < schedule.buffers) sums.emplace_back(model);
  while (workspaces.size() < schedule.waves.front().shards.size()) workspaces.emplace_back();
  // Laid out once for all of them.
  if (mine.count() * options.accumulate > 1) model.prepare(Prepare::training);
  std::vector<double> losses(static_cast<std::size_t>(options.shards));
  exchange->begin();
  for (const ShardWave& wave : schedule.waves) train_wave(schedule, wave, losses);
  gradients = exchange->finish(schedule.nodes, sums);
  gather_numbers(world, losses);
  // Only now: where a row could not be had, no part of the step was taken.
  progress.passes += options.accumulate;
  progress.rows += options.accumulate * options.batch;
  return tree_sum(std::move(losses));
}

// Sums of squares of pieces, which every process adds in the same order: within parameters first.
double Trainer::State::gradient_norm() {
  std::vector<double> squares(static_cast<std::size_t>(piece_count(parameters)));
  for (std::size_t k = 0; k < own.size(); ++k) {
    const Share& pieces = own[k].pieces;
    ops::sums_of_squares(gradients[k], MutableTensorView(squares.data() + pieces.begin, DType::f64,
                                                         {pieces.count()}));
  }
  gather_numbers(world, squares);
  double total = 0.0;
  auto from = squares.begin();
  for (const GptParameter& p : parameters) {
    double sum = 0.0;
    for (dim_t at = 0; at < p.value.numel(); at += ops::kSquaresPiece) sum += *from++;
    total += sum;
  }
  return std::sqrt(total);
}

void Trainer::State::update(double learning_rate, double factor) {
  std::vector<MutableTensorView> values;
  model.update_all(
      [&](std::size_t, const std::string&, const MutableTensorView& p) { values.push_back(p); });
  AdamWOptions step{learning_rate, options.beta1, options.beta2, options.eps, 0.0};
  for (std::size_t k = 0; k < own.size(); ++k) {
    const Part& part = own[k];
    if (factor != 1.0) ops::scale(gradients[k], factor);
    step.weight_decay = is_decayed(parameters[part.parameter].kind) ? options.weight_decay : 0.0;
    adamw[k].step = progress.updates;
    adamw_step(elements_of(values[part.parameter], part.elements), gradients[k], adamw[k], step);
  }
  ++progress.updates;
  const auto transfers = world.transfers();
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const MutableTensorView part = elements_of(values[parts[p].parameter], parts[p].elements);
    const int tag = static_cast<int>(p);
    if (parts[p].owner != world.rank()) {
      transfers->receive(parts[p].owner, tag, bytes_of(part));
      continue;
    }
    for (int r = 0; r < world.size(); ++r) {
      if (r != world.rank()) transfers->send(r, tag, bytes_of(TensorView(part)));
    }
  }
  transfers->wait();
}

double Trainer::State::loss_of_passes(const RowSource& source, std::int64_t count) {
  const dim_t all = checked_mul(count, options.context_length);
  if (workspaces.empty()) workspaces.emplace_back();
  double loss = 0.0;
  for (std::int64_t first = 0; first < count; first += options.batch) {
    Batch batch(std::min(options.batch, count - first), options.context_length);
    batch.fill(source, first);
    PassOptions how;
    how.workspace = &workspaces.front();
    loss += model.loss_pass(
        batch.ids,
        [&](dim_t begin, const MutableTensorView& logits) {
          return cross_entropy_share(logits, batch.targets_of(begin, logits), all);
        },
        how);
  }
  return loss;
}

double Trainer::State::loss_of_rows(const RowSource& source, std::int64_t count) {
  const dim_t tokens = options.context_length;
  const Share mine = own_share(world, count);
  const dim_t at_once = std::min(options.batch, std::max<dim_t>(1, mine.count()));
  if (workspaces.empty()) workspaces.emplace_back();
  std::vector<double> losses(static_cast<std::size_t>(count));
  for (dim_t first = mine.begin; first < mine.end; first += at_once) {
    Batch batch(std::min(at_once, mine.end - first), tokens);
    batch.fill(source, first);
    PassOptions how;
    how.workspace = &workspaces.front();
    model.loss_pass(
        batch.ids,
        [&](dim_t begin, const MutableTensorView& logits) {
          Tensor each = Tensor::empty({logits.dim(0)}, DType::f64);
          ops::cross_entropy({.logits = logits,
                              .targets = batch.targets_of(begin, logits),
                              .ignore_index = kIgnoreTarget,
                              .factor = 1.0,
                              .losses = each,
                              .dlogits = {}});
          for (dim_t k = 0; k < each.dim(0); ++k) {
            losses[static_cast<std::size_t>(first + (begin + k) / tokens)] +=
                each.data_as<double>()[k];
          }
          return 0.0;
        },
        how);
  }
  gather_numbers(world, losses);
  double sum = 0.0;
  for (const double loss : losses) sum += loss;
  return sum / static_cast<double>(checked_mul(count, tokens));
}

dim_t default_shards(dim_t batch) {
  constexpr dim_t kMost = 16;
  dim_t shards = 1;
  while (shards < kMost && batch % (2 * shards) == 0) shards *= 2;
  return shards;
}

GptMemory training_memory(const GptOptions& model, const TrainerOptions& options, int threads,
                          int processes) {
  TrainerOptions o = options;
  if (o.context_length == 0) o.context_length = model.context_length;
  require(o.shards >= 1 && o.batch % o.shards == 0 && processes >= 1 && processes <= o.shards,
          "training_memory: {} processes, shards ({}) and batch ({}) do not fit together",
          processes, o.shards, o.batch);
  const Share most = share_of(o.shards, 0, processes);
  const dim_t beside = beside_of(model, o, most.count(), threads);
  GptMemory memory = memory_bytes(model, o.batch / o.shards, o.context_length);
  const dim_t passes = most.count() * o.accumulate;
  memory.pass = checked_mul(memory.pass, beside);
  // All matrices laid out, both ways; and what the others send of own parts.
  if (passes > 1) memory.pass = checked_add(memory.pass, checked_mul(2, memory.parameters));
  const auto buffers = static_cast<dim_t>(make_schedule(most, beside).buffers);
  const dim_t received = processes > 1 ? memory.gradients : 0;
  memory.gradients = checked_add(checked_mul(memory.gradients, buffers), received);
  memory.optimiser = memory.optimiser / processes;
  return memory;
}

}  // namespace cephalo
