// The emulation of Hopper's primitives: barriers, the copy engine, products of a warpgroup, register budgets.
#include "simulator/primitives.h"

#include <cstring>

#include <fmt/format.h>

namespace tilewright::simulator {

// --- named barriers

namespace {

/// Counts an arrival; true: it is the last one, and those who wait are awake.
bool arrive_at_named_barrier(Block& block, int id, int threads, Place place) {
  if (id < 1 || id > 15) {
    block.fail(place, [&] { return fmt::format("barrier {}, expected 1 to 15", id); });
  }
  if (threads < 32 || threads > block.threads() || threads % 32 != 0) {
    block.fail(place, [&] {
      return fmt::format("barrier {} among {} threads, expected a multiple of 32 up to the block's {}", id,
                         threads, block.threads());
    });
  }
  NamedBarrier& barrier = block.named_barrier(id);
  if (barrier.arrived == 0) {
    barrier.threads = threads;
    barrier.place = place;
  } else if (barrier.threads != threads) {
    block.fail(
        place,
        [&] {
          return fmt::format("mismatched counts: barrier {} among {} threads, but {} has it among {}", id,
                             threads, describe(barrier.place), barrier.threads);
        },
        barrier.place.line());
  }
  block.checker().release(block.thread(), barrier.clock);
  if (++barrier.arrived < threads) return false;
  barrier.arrived = 0;
  for (size_t warp = 0; warp < barrier.waiting.size(); ++warp) {
    for (int lane = 0; lane < 32; ++lane) {
      if (barrier.waiting[warp] >> lane & 1) {
        block.checker().acquire(static_cast<int>(warp) * 32 + lane, barrier.clock);
      }
    }
  }
  block.wake_all(barrier.waiting);
  return true;
}

}  // namespace

void named_barrier_wait(int id, int threads, int site) {
  Block& block = Block::current();
  const Place place(Primitive::named_barrier_wait, site);
  const bool last = arrive_at_named_barrier(block, id, threads, place);
  NamedBarrier& barrier = block.named_barrier(id);
  if (!last) return block.sleep(barrier.waiting, place);
  block.checker().acquire(block.thread(), barrier.clock);
  barrier.clock.clear();
  block.yield();  // the last to come gets no head start
}

void named_barrier_arrive(int id, int threads, int site) {
  Block& block = Block::current();
  if (arrive_at_named_barrier(block, id, threads, {Primitive::named_barrier_arrive, site})) {
    block.named_barrier(id).clock.clear();
  }
}

// --- barriers in shared memory

namespace {

MemoryBarrier& barrier_at(Block& block, uint32_t address, Place place) {
  MemoryBarrier* const barrier = block.memory_barriers().find(address);
  if (!barrier) {
    block.fail(place,
               [&] { return fmt::format("there is no initialised barrier at shared byte {}", address); });
  }
  if (!block.checker().comes_after(block.thread(), barrier->initialised)) {
    block.fail(
        place,
        [&] {
          return fmt::format(
              "race: the use of the barrier at shared byte {} is not ordered after its initialisation "
              "by {}, {}",
              address, describe_thread(barrier->initialised.thread), describe(barrier->place));
        },
        barrier->place.line());
  }
  return *barrier;
}

/// The same of the running thread's own block.
MemoryBarrier& own_barrier_at(Block& block, uint32_t address, Place place) {
  check_shared_bounds(block, block.thread(), "a barrier of ", address, 8, place);
  return barrier_at(block, address, place);
}

void arrive(Block& block, uint32_t address, MemoryBarrier& barrier, Place place) {
  if (barrier.pending == 0) {
    block.fail(
        place,
        [&] {
          return fmt::format(
              "too many arrivals: the barrier at shared byte {} takes {} a phase, and phase {} only "
              "waits for {} more bytes",
              address, barrier.arrivals, barrier.phases, barrier.bytes);
        },
        barrier.place.line());
  }
  block.checker().release(block.thread(), barrier.arriving);
  --barrier.pending;
  block.settle(barrier);
}

}  // namespace

void arrive(Block& block, uint32_t address, Place place) {
  arrive(block, address, barrier_at(block, address, place), place);
}

void barrier_initialize(unsigned address, int arrivals, int site) {
  Block& block = Block::current();
  const Place place(Primitive::barrier_initialize, site);
  constexpr int most_arrivals = (1 << 20) - 1;
  if (arrivals < 1 || arrivals > most_arrivals) {
    block.fail(place,
               [&] { return fmt::format("{} arrivals a phase, expected 1 to {}", arrivals, most_arrivals); });
  }
  shared_at(block, block.thread(), address, 8, place);
  MemoryBarrier* const barrier = block.memory_barriers().add(address, arrivals);
  if (!barrier) {
    block.fail(place, [&] {
      return fmt::format("the simulator has room for {} barriers a block", RaceChecker::most_barriers);
    });
  }
  // The barrier takes its bytes over: who used them before must have been waited for.
  if (!block.checker().write(address, 8, block.thread(), place))
    fail_conflict(block, block.thread(), place, true);
  barrier->initialised = block.checker().now(block.thread());
  barrier->place = place;
}

void fence_barrier_initialization(int) {
  Block& block = Block::current();
  block.memory_barriers().fence(block.thread());
}

void barrier_arrive(unsigned address, int site) {
  Block& block = Block::current();
  const Place place(Primitive::barrier_arrive, site);
  arrive(block, address, own_barrier_at(block, address, place), place);
}

void barrier_arrive_expecting(unsigned address, int bytes, int site) {
  Block& block = Block::current();
  const Place place(Primitive::barrier_arrive_expecting, site);
  MemoryBarrier& barrier = own_barrier_at(block, address, place);
  constexpr int most_bytes = (1 << 20) - 1;
  if (bytes < 0 || barrier.bytes + bytes > most_bytes) {
    block.fail(place, [&] {
      return fmt::format("{} bytes expected beside {}: a phase counts up to {}", bytes, barrier.bytes,
                         most_bytes);
    });
  }
  barrier.bytes += bytes;
  arrive(block, address, barrier, place);
}

void barrier_wait(unsigned address, int parity, int site) {
  Block& block = Block::current();
  const Place place(Primitive::barrier_wait, site);
  if (parity != 0 && parity != 1) {
    block.fail(place, [&] { return fmt::format("a parity of {}, expected 0 or 1", parity); });
  }
  MemoryBarrier& barrier = own_barrier_at(block, address, place);
  while (!barrier.is_over(parity)) block.sleep(barrier.waiting, place);
  block.checker().acquire(block.thread(), barrier.over);
}

// --- the copy engine

void check_copied_bytes(Block& block, const char* what, uint32_t address, int bytes, Place place) {
  check_shared_bounds(block, block.thread(), what, address, bytes, place);
  if (const int64_t other = block.memory_barriers().overlapping(address, bytes); other >= 0) {
    block.fail(place, [&] {
      return fmt::format("{}{} bytes at shared byte {} covers the barrier at {}", what, bytes, address,
                         other);
    });
  }
}

void start_copy(Block& block, TensorCopy& copy) {
  const MemoryBarrier& barrier = barrier_at(block, copy.barrier, copy.place);
  if (!barrier.fenced) {
    block.fail(
        copy.place,
        [&] {
          return fmt::format(
              "the copy engine does not know the barrier at shared byte {}: fence_barrier_initialization "
              "is missing after its initialisation",
              copy.barrier);
        },
        barrier.place.line());
  }
  copy.id = block.checker().start_tensor_copy(copy.destination, copy.bytes(), copy.thread, copy.place);
  if (copy.id == 0) fail_conflict(block, copy.thread, copy.place, true);
  block.start(copy);
}

TensorCopy checked_box(Block& block, uint32_t destination, const void* map, const int* coordinates, int rank,
                       Place place) {
  TensorCopy copy;
  copy.map = decode(map);
  copy.destination = destination;
  copy.thread = block.thread();
  copy.place = place;
  if (rank != 4) block.fail(place, [&] { return fmt::format("rank {}, expected 4", rank); });
  if (!tensor_map_fault(copy.map).empty()) block.fail(place, [&] { return tensor_map_fault(copy.map); });
  std::memcpy(copy.coordinates, coordinates, sizeof copy.coordinates);
  if (destination % 1024 != 0) {
    block.fail(place, [&] {
      return fmt::format("misaligned: a swizzled box at shared byte {}, expected a multiple of 1024",
                         destination);
    });
  }
  check_copied_bytes(block, "a box of ", destination, copy.bytes(), place);
  if (!tensor_read_fault(copy, block.global()).empty()) {
    block.fail(place, [&] { return tensor_read_fault(copy, block.global()); });
  }
  return copy;
}

void tensor_load(unsigned destination, const void* map, unsigned barrier, const int* coordinates, int rank,
                 int site) {
  Block& block = Block::current();
  const Place place(Primitive::tensor_load, site);
  TensorCopy copy = checked_box(block, destination, map, coordinates, rank, place);
  check_shared_bounds(block, block.thread(), "a barrier of ", barrier, 8, place);
  copy.barrier = barrier;
  start_copy(block, copy);
}

// --- products of a warpgroup

namespace {

void check_warpgroup(Block& block, Place place) {
  if (block.warpgroups().complete(block.thread() / 32)) return;
  block.fail(place, [&] {
    return fmt::format(
        "the warp belongs to no warpgroup: the block has {} threads, a warpgroup 128 from a multiple of "
        "128 on",
        block.threads());
  });
}

void check_descriptor(Block& block, const char* operand, uint32_t descriptor, Place place) {
  const uint32_t address = (descriptor & 0x3fff) * 16;
  if (descriptor >> 30 == 0 && (descriptor >> 14 & 3) == 0 && address % 1024 < 128) return;
  block.fail(place, [&] {
    return fmt::format(
        "the descriptor {:#010x} of operand {} has shared byte {} in bits 0-13; expected one in the first "
        "128 of a multiple of 1024, and bits 14-15 and 30-31 zero",
        descriptor, operand, address);
  });
}

/// The products just issued read their operands from now on.
uint32_t start_products(Block& block, const std::vector<Product>& products) {
  const int warp = block.thread() / 32;
  uint32_t number = 0;
  for (const Product& product : products) {
    number = block.checker().start_product(warp, product.place);
    for_each_granule(product, warp % 4, [&](uint32_t address) {
      address += block.descriptor_base();
      const int64_t offset = int64_t{address} - block.shared_base();
      if (offset < 0 || offset + 16 > block.shared_bytes()) {
        block.fail(product.place, [&] {
          return fmt::format(
              "out of bounds: an operand reaches shared byte {}, the block has {} bytes of shared memory",
              offset + 15, block.shared_bytes());
        });
      }
      if (!block.checker().read_by_product(address, warp)) {
        fail_conflict(block, block.thread(), product.place, false);
      }
    });
  }
  return number;
}

}  // namespace

void warpgroup_fence(int site) {
  Block& block = Block::current();
  check_warpgroup(block, {Primitive::warpgroup_fence, site});
  block.warpgroups().products(block.thread() / 32).fence(block.thread() % 32);
}

void warpgroup_multiply(int n, float* d, const unsigned* a, unsigned descriptor_a, unsigned descriptor_b,
                        int accumulate, int transposed, int element_type, int site) {
  Block& block = Block::current();
  const Place place(Primitive::warpgroup_multiply, site);
  check_warpgroup(block, place);
  if (n < 8 || n > 256 || n % 8 != 0) {
    block.fail(place, [&] { return fmt::format("n is {}, expected a multiple of 8 up to 256", n); });
  }
  if (element_type != 0 && element_type != 1) {
    block.fail(place,
               [&] { return fmt::format("element type {}, expected 0 (fp16) or 1 (bf16)", element_type); });
  }
  if (transposed < 0 || transposed > (a ? 1 : 3)) {
    block.fail(place, [&] {
      return fmt::format("transposed is {}, expected {}", transposed,
                         a ? "0 or 1 with A in registers" : "0 to 3");
    });
  }
  if (!a) check_descriptor(block, "a", descriptor_a, place);
  check_descriptor(block, "b", descriptor_b, place);
  const int lane = block.thread() % 32;
  WarpProducts& products = block.warpgroups().products(block.thread() / 32);
  if (!products.fenced(lane)) {
    block.fail(place,
               [&] { return "warpgroup_fence is missing: registers may have changed since the last wait"; });
  }
  const Product product = {n,
                           a != nullptr,
                           a ? 0 : descriptor_a,
                           descriptor_b,
                           accumulate != 0,
                           (transposed & 2) != 0,
                           (transposed & 1) != 0,
                           static_cast<ElementType>(element_type),
                           place};
  if (products.issue(lane, product, {d, a})) return;
  const Place other = products.other_place();
  block.fail(
      place,
      [&] {
        return fmt::format("divergence: lanes of one warp ask for different products, another one by {}",
                           describe(other));
      },
      other.line());
}

void warpgroup_commit(int site) {
  Block& block = Block::current();
  const Place place(Primitive::warpgroup_commit, site);
  check_warpgroup(block, place);
  int nothing = 0;
  block.collective(place, nothing, [&](int* const*) {
    Warpgroups& groups = block.warpgroups();
    const int warp = block.thread() / 32;
    WarpProducts& products = groups.products(warp);
    if (!products.lanes_agree()) {
      block.fail(place,
                 [] { return "divergence: lanes of one warp have issued different numbers of products"; });
    }
    const std::vector<Product>& open = products.open();
    if (!groups.note_commit(warp, open)) {
      block.fail(
          place,
          [&] {
            return fmt::format(
                "the warps of one warpgroup commit different products, another one those by {}",
                describe(groups.other_place()));
          },
          groups.other_place().line());
    }
    products.commit(start_products(block, open));
  });
}

void warpgroup_wait(int groups_in_flight, int site) {
  Block& block = Block::current();
  const Place place(Primitive::warpgroup_wait, site);
  check_warpgroup(block, place);
  if (groups_in_flight < 0 || groups_in_flight > 7) {
    block.fail(place, [&] { return fmt::format("{} groups in flight, expected 0 to 7", groups_in_flight); });
  }
  int nothing = 0;
  block.collective(place, nothing, [&](int* const*) {
    const int warp = block.thread() / 32;
    WarpProducts& products = block.warpgroups().products(warp);
    const WarpProducts::Finished finished =
        products.finish(groups_in_flight, warp % 4, block.shared() + block.descriptor_base());
    if (finished.lane >= 0) {
      block.fail(
          warp * 32 + finished.lane, place,
          [&] {
            return fmt::format(
                "registers of the product by {} were written while it was at work: a wait before their "
                "use is missing",
                describe(finished.place));
          },
          finished.place.line());
    }
    if (finished.number != 0) block.checker().finish_products(warp, finished.number);
  });
}

// --- registers

void set_registers(int count, int increase, int site) {
  Block& block = Block::current();
  const Place place(Primitive::set_registers, site);
  check_warpgroup(block, place);
  if (count < 24 || count > 256 || count % 8 != 0) {
    block.fail(place,
               [&] { return fmt::format("{} registers, expected a multiple of 8 from 24 to 256", count); });
  }
  int nothing = 0;
  block.collective(place, nothing, [&](int* const*) {
    Warpgroups& groups = block.warpgroups();
    const int warp = block.thread() / 32, before = groups.registers(warp);
    if (increase ? count < before : count > before) {
      block.fail(place, [&] {
        return fmt::format("{} from {} registers to {}", increase ? "takes" : "releases", before, count);
      });
    }
    while (!groups.set_registers(warp, count))
      block.sleep_in_collective(groups.waiting_for_registers(), place);
    if (!increase) block.wake_all(groups.waiting_for_registers());
  });
}

}  // namespace tilewright::simulator
