#include "cephalo/attention/engine/engine.h"

#include <algorithm>
#include <atomic>

#include "cephalo/attention/fused/engine.h"
#include "cephalo/attention/plan.h"
#include "cephalo/attention/reference/engine.h"
#include "cephalo/core/common_device.h"
#include "cephalo/core/fail.h"
#ifdef CEPHALO_CUDA
#include "cephalo/attention/cuda/engine.h"
#endif

namespace cephalo {
namespace {

// In order of preference, after a place for ScopedEngine's. An array and not a registration: a
// static library would drop the object file of an engine that nobody names.
const EngineEntry* list[] = {nullptr,
#ifdef CEPHALO_CUDA
                             &cuda_engine, &cuda_simple_engine,
#endif
                             &fused_engine, &reference_engine};
std::atomic<std::size_t> first_used{1};

bool has(const EngineEntry& entry, Job job) {
  switch (job) {
    case Job::attend:
    case Job::decode:
      return entry.attend != nullptr;
    case Job::backward:
      return entry.attend_backward != nullptr;
    case Job::weights:
      return entry.weights != nullptr;
    case Job::pooled_weights:
      return entry.pooled_weights != nullptr;
    case Job::row_sums:
      return entry.row_sums != nullptr;
    case Job::scores:
      return entry.scores != nullptr;
    case Job::tangent:
      return entry.attend_tangent != nullptr;
    case Job::second:
      return entry.attend_second != nullptr;
  }
  return false;
}

const char* why_not(const EngineEntry& entry, const AttendProblem& problem,
                    std::initializer_list<Job> jobs) {
  for (const Job job : jobs) {
    if (const char* reason = cephalo::why_not(entry, problem, job)) return reason;
  }
  return nullptr;
}

const EngineEntry& asked_for(Engine engine, const char* function) {
  for (const EngineEntry* each : engines()) {
    if (each->engine == engine) return *each;
  }
  require(engine != Engine::cuda && engine != Engine::cuda_simple,
          "{}: this build has no engines for CUDA", function);
  fail(Error::Kind::value, "{}: there is no engine {}", function, static_cast<int>(engine));
}

const EngineEntry& first_that_can(const AttendProblem& problem, std::initializer_list<Job> jobs,
                                  const char* function) {
  std::string refusals;
  for (const EngineEntry* each : engines()) {
    const char* reason = why_not(*each, problem, jobs);
    if (reason == nullptr) return *each;
    append_text(refusals, "; {} refuses: {}", each->name, reason);
  }
  fail(Error::Kind::value, "{}: no engine can do this{}", function, refusals);
}

void check_required(const EngineEntry& chosen, const AttendProblem& problem,
                    std::initializer_list<Job> jobs, const char* function) {
  const AttendOptions& options = problem.options;
  if (options.require == Engine::automatic || options.require == chosen.engine) return;
  const EngineEntry& required = asked_for(options.require, function);
  const char* reason = why_not(required, problem, jobs);
  fail(Error::Kind::value, "{}: {} is required, but {}", function, required.name,
       reason != nullptr                 ? format_text("it refuses: {}", reason)
       : options.engine == chosen.engine ? format_text("engine = {} was asked for", chosen.name)
                                         : format_text("engine = automatic picks {}", chosen.name));
}

}  // namespace

std::span<const EngineEntry* const> engines() {
  return std::span(list).subspan(first_used.load(std::memory_order_acquire));
}

const char* why_not(const EngineEntry& entry, const AttendProblem& problem, Job job) {
  const Device device = problem.q.device();
  if (entry.absent != nullptr) {
    const char* reason = entry.absent(device.kind == entry.device ? device : Device{entry.device});
    if (reason != nullptr) return reason;
  }
  if (device.kind != entry.device) {
    return device.is_host() ? "q, k and v lie on the host" : "q, k and v do not lie on the host";
  }
  if (!has(entry, job)) return "it does not do this job";
  return entry.refuses(problem, job);
}

const EngineEntry& choose_engine(const AttendProblem& problem, std::initializer_list<Job> jobs,
                                 const char* function) {
  const Engine wanted = problem.options.engine;
  const EngineEntry& chosen = wanted == Engine::automatic ? first_that_can(problem, jobs, function)
                                                          : asked_for(wanted, function);
  if (wanted != Engine::automatic) {
    const char* reason = why_not(chosen, problem, jobs);
    require(reason == nullptr, "{}: the {} engine refuses: {}", function, chosen.name,
            reason != nullptr ? reason : "");
  }
  check_required(chosen, problem, jobs, function);
  return chosen;
}

void require_engine_on(const char* function, const TensorView& q) {
  for (const EngineEntry* each : engines()) {
    if (each->device != q.device().kind) continue;
    if (each->absent == nullptr || each->absent(q.device()) == nullptr) return;
  }
  require_host(function, {{"q", q}});
}

Job forward_job(const AttendProblem& problem) {
  return problem.cache != nullptr ? Job::decode : Job::attend;
}

const EngineEntry& choose_scores_engine(const AttendProblem& problem, const char* function) {
  if (problem.options.engine != Engine::automatic) {
    const EngineEntry& asked = asked_for(problem.options.engine, function);
    if (cephalo::why_not(asked, problem, Job::scores) == nullptr) return asked;
  }
  return first_that_can(problem, {Job::scores}, function);
}

const char* name(Job job) {
  constexpr const char* kNames[] = {"attend",   "decode", "backward", "weights", "pooled_weights",
                                    "row_sums", "scores", "tangent",  "second"};
  return kNames[static_cast<int>(job)];
}

const char* name(Engine engine) {
  if (engine == Engine::automatic) return "automatic";
  for (const EngineEntry* each : engines()) {
    if (each->engine == engine) return each->name;
  }
  return "?";
}

std::vector<NamedEngine> named_engines() {
  std::vector<NamedEngine> all;
  for (const EngineEntry* each : engines()) all.push_back({each->name, each->engine});
  std::sort(all.begin(), all.end(), [](const NamedEngine& a, const NamedEngine& b) {
    return a.engine < b.engine;  // as the C interface counts them
  });
  return all;
}

ScopedEngine::ScopedEngine(const EngineEntry& entry) {
  require(list[0] == nullptr, "ScopedEngine: there is one already");
  list[0] = &entry;
  first_used.store(0, std::memory_order_release);
}

ScopedEngine::~ScopedEngine() {
  first_used.store(1, std::memory_order_release);
  list[0] = nullptr;
}

}  // namespace cephalo
