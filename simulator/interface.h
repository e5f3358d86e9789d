// SimulatorInterface, from the very file that generated source holds a copy of.
#pragma once

namespace tilewright::simulator {

#include "templates/primitives/simulator_interface.cuh"

/// The one table: its functions act for the thread that runs on the calling OS thread.
extern const SimulatorInterface simulator_interface;

}  // namespace tilewright::simulator
