# What every target of the project shares: the language, the warnings, the sanitizers.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# The sanitizer presets' build type: half the compile time of -O2 -g, and reports keep their lines.
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -DNDEBUG")
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(fasa_flags INTERFACE)
target_include_directories(fasa_flags INTERFACE ${PROJECT_SOURCE_DIR})
# Results must be the same bits on every path: no contraction that depends on inlining, no fast math.
target_compile_options(fasa_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -ffp-contract=off>)
if(FASA_SANITIZE)
  target_compile_options(fasa_flags INTERFACE -fsanitize=${FASA_SANITIZE} -fno-omit-frame-pointer
                                              -fno-sanitize-recover=all)
  target_link_options(fasa_flags INTERFACE -fsanitize=${FASA_SANITIZE})
  string(FIND "${FASA_SANITIZE}" "thread" tsan_at)
  if(NOT tsan_at EQUAL -1)
    target_compile_definitions(fasa_flags INTERFACE FASA_TSAN=1)
  endif()
endif()

# fasa_library(name DEPENDS targets...): a static library of all sources in this folder.
function(fasa_library name)
  cmake_parse_arguments(arg "" "" "DEPENDS;SOURCES" ${ARGN})
  if(NOT arg_SOURCES)
    file(GLOB arg_SOURCES CONFIGURE_DEPENDS *.cc)
  endif()
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC fasa_flags ${arg_DEPENDS})
endfunction()
