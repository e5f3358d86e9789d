#include "tuner/bench_process.h"

#include <algorithm>

#include "codegen/error.h"
#include "tuner/message.h"

namespace tilewright {
namespace {

enum Request : int { refuse_request, shape_request, round_request };

std::string rounded_seconds(double seconds) {
  return std::to_string(static_cast<int>(seconds + 0.5)) + " s";
}

std::vector<int> read_order(MessageReader& message) {
  std::vector<int> order(static_cast<size_t>(message.integer()));
  for (int& candidate : order) candidate = message.small_integer();
  return order;
}

// In the child. An answer starts with "" or with what failed; the child ends after a failed launch, since the
// context may be lost with it.
void serve(Channel& channel, const BenchFactory& factory) {
  std::unique_ptr<Bench> bench;
  try {
    bench = factory();
  } catch (const std::exception& error) {
    channel.send(MessageWriter().put(error.what()).bytes());
    return;
  }
  channel.send(MessageWriter().put("").bytes());
  while (const auto request = channel.receive()) {
    MessageReader reader(*request);
    MessageWriter reply;
    try {
      switch (reader.small_integer()) {
        case refuse_request: {
          const std::string reason = bench->refuse(reader.small_integer());
          reply.put("").put(reason);
          break;
        }
        case shape_request: {
          const int64_t batch = reader.integer(), heads = reader.integer(), q = reader.integer();
          bench->use_shape({batch, heads, q, reader.integer()});
          reply.put("");
          break;
        }
        case round_request: {
          const std::vector<Sample> samples = bench->round(read_order(reader));
          reply.put("").put(static_cast<int64_t>(samples.size()));
          for (const Sample& sample : samples) reply.put(sample.microseconds).put(sample.throttled ? 1 : 0);
          break;
        }
      }
    } catch (const std::exception& error) {
      channel.send(MessageWriter().put(error.what()).bytes());
      return;
    }
    if (!channel.send(reply.bytes())) return;
  }
}

}  // namespace

BenchProcess::BenchProcess(BenchFactory factory, const Limits& limits)
    : factory_(std::move(factory)), limits_(limits), begin_(std::chrono::steady_clock::now()) {}

double BenchProcess::seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void BenchProcess::start() {
  child_.reset();
  child_.emplace([this](Channel& channel) { serve(channel, factory_); });
  const auto reply = child_->channel().receive(limits_.start_seconds);
  const std::string why = reply ? MessageReader(*reply).text() : "it does not answer";
  if (!why.empty()) {
    child_.reset();
    throw Error(ErrorKind::device, "the process that times kernels cannot start: " + why);
  }
  // What the process before had.
  const std::vector<int> loaded = std::exchange(loaded_, {});
  for (int candidate : loaded) refuse(candidate);
  if (shape_) use_shape(*shape_);
}

BenchProcess::Reply BenchProcess::ask(const std::string& request, double seconds) {
  if (!child_) start();
  const auto begin = std::chrono::steady_clock::now();
  child_->channel().send(request);
  auto reply = child_->channel().receive(seconds);
  if (!reply) {
    const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const bool hung = waited + 0.01 >= seconds;  // waiting counts in whole milliseconds
    const std::string end = child_->stop();
    child_.reset();
    return {std::nullopt, hung ? "did not end within " + rounded_seconds(seconds) : "its process " + end};
  }
  const std::string failure = MessageReader(*reply).text();
  if (failure.empty()) return {reply, ""};
  child_.reset();
  return {std::nullopt, failure};
}

std::string BenchProcess::refuse(int candidate) {
  const Reply reply = ask(MessageWriter().put(refuse_request).put(candidate).bytes(), limits_.check_seconds);
  if (!reply.message) return reply.why;
  MessageReader reader(*reply.message);
  reader.text();
  std::string reason = reader.text();
  if (reason.empty()) loaded_.push_back(candidate);
  return reason;
}

void BenchProcess::use_shape(const LaunchShape& shape) {
  shape_ = shape;
  const Reply reply = ask(MessageWriter()
                              .put(shape_request)
                              .put(shape.batch)
                              .put(shape.heads)
                              .put(shape.seqlen_q)
                              .put(shape.seqlen_kv)
                              .bytes(),
                          limits_.check_seconds);
  if (!reply.message)
    throw Error(ErrorKind::device, "cannot make the inputs to time kernels with: " + reply.why);
}

std::optional<std::vector<Sample>> BenchProcess::try_round(const std::vector<int>& order, std::string& why) {
  MessageWriter request;
  request.put(round_request).put(static_cast<int64_t>(order.size()));
  for (int candidate : order) request.put(candidate);
  const Reply reply = ask(request.bytes(), limits_.round_seconds);
  why = reply.why;
  if (!reply.message) return std::nullopt;
  MessageReader reader(*reply.message);
  reader.text();
  std::vector<Sample> samples(static_cast<size_t>(reader.integer()));
  for (Sample& sample : samples) {
    sample.microseconds = reader.real();
    sample.throttled = reader.integer() != 0;
  }
  return samples;
}

std::vector<Sample> BenchProcess::round(const std::vector<int>& order) {
  std::string why;
  if (auto samples = try_round(order, why)) return *samples;
  // Somebody in the round brought the process down: one at a time, who it was.
  std::vector<Sample> samples;
  for (int candidate : order) {
    auto alone = try_round({candidate}, why);
    samples.push_back(alone ? alone->front() : Sample{.failure = "its launch failed: " + why});
    if (!alone) std::erase(loaded_, candidate);
  }
  return samples;
}

}  // namespace tilewright
