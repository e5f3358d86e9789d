# Where the third-party pieces come from. Debian and Ubuntu packages, except the CUDA headers.
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)

# yaml-cpp, linked statically: the installed tree must run on machines without it.
find_library(YAML_CPP_ARCHIVE libyaml-cpp.a REQUIRED)
find_path(YAML_CPP_INCLUDE yaml-cpp/yaml.h REQUIRED)
add_library(tilewright_yaml_cpp INTERFACE)
target_link_libraries(tilewright_yaml_cpp INTERFACE ${YAML_CPP_ARCHIVE})
target_include_directories(tilewright_yaml_cpp SYSTEM INTERFACE ${YAML_CPP_INCLUDE})

# cuda.h and nvrtc.h, for types alone (both libraries are loaded with dlopen): from a toolkit, else from the wheels
# that `make` unpacks into build/cuda.
find_path(CUDA_HEADERS cuda.h REQUIRED HINTS ${PROJECT_BINARY_DIR}/cuda/include /usr/local/cuda/include
          $ENV{CUDA_HOME}/include PATHS /usr/local/cuda/targets/x86_64-linux/include)
find_path(NVRTC_HEADERS nvrtc.h REQUIRED HINTS ${CUDA_HEADERS} ${PROJECT_BINARY_DIR}/cuda/include)
add_library(tilewright_cuda_headers INTERFACE)
target_include_directories(tilewright_cuda_headers SYSTEM INTERFACE ${CUDA_HEADERS} ${NVRTC_HEADERS})
