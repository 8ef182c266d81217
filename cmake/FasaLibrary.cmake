# Settings shared by all targets of the project: the language, the warnings, the sanitizers.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Numeric loops are in the kernels, which set -O3 themselves. Elsewhere -O3 only makes
# compiling an eighth slower.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# The sanitizer presets' build type: half the compile time of -O2 -g, and reports keep their lines.
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -DNDEBUG")
# With so little analysis GCC takes initialized variables for uninitialized; release builds look.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  string(APPEND CMAKE_CXX_FLAGS_SANITIZE " -Wno-maybe-uninitialized")
endif()
# Shares ccache between clones in any folder: paths below a clone are relative to its root, and
# precompiled headers are compared by content.
find_program(CCACHE ccache)
find_program(ENV_PROGRAM env)
if(CCACHE AND ENV_PROGRAM)
  set(CCACHE_LAUNCHER ${ENV_PROGRAM} CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_LAUNCHER})
endif()
# mold links in a tenth of the time of the system's linker.
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(fasa_flags INTERFACE)
target_include_directories(fasa_flags INTERFACE ${PROJECT_SOURCE_DIR})
# -fPIC for programs too, so that they share precompiled headers with libraries. Results must have
# the same bits on every path: no contraction that depends on inlining, no fast math.
target_compile_options(fasa_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fPIC -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -ffp-contract=off>)
if(FASA_SANITIZE)
  target_compile_options(fasa_flags INTERFACE -fsanitize=${FASA_SANITIZE} -fno-omit-frame-pointer
                                              -fno-sanitize-recover=all)
  target_link_options(fasa_flags INTERFACE -fsanitize=${FASA_SANITIZE})
  string(FIND "${FASA_SANITIZE}" "thread" tsan_at)
  if(NOT tsan_at EQUAL -1)
    target_compile_definitions(fasa_flags INTERFACE FASA_TSAN=1)
  endif()
endif()

# FASA_UNITY=ON: several sources per compiler run, which halves the time of a full build and makes a
# build after an edit slower; tools/test uses it.
option(FASA_UNITY "Compile sources in groups" OFF)
set(FASA_UNITY_LINES 2000)  # lines of sources per group
if(FASA_UNITY)
  find_program(PYTHON3 python3 REQUIRED)
endif()

# Whether a source has options of its own: those of an instruction set, for example.
function(fasa_has_options path result)
  set(${result} OFF PARENT_SCOPE)
  foreach(name COMPILE_OPTIONS COMPILE_DEFINITIONS SKIP_PRECOMPILE_HEADERS
               SKIP_UNITY_BUILD_INCLUSION)
    get_source_file_property(value ${path} ${name})
    if(value)
      set(${result} ON PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# At a folder's end: a grouped source has no options yet. Those would be lost.
function(fasa_check_grouped)
  foreach(path ${ARGN})
    fasa_has_options(${path} late)
    if(late)
      message(FATAL_ERROR "${path} has properties that were set after its target was made; "
                          "set them before")
    endif()
  endforeach()
endfunction()

# Replaces the sources of a target by files that include several of them each. Sources with options
# of their own stay as they are. CMake's own unity builds name sources by absolute paths, so ccache
# would not share them between clones.
function(fasa_unity target)
  if(NOT FASA_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  set(alone "")
  set(paths "")
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} OUTPUT_VARIABLE path)
    fasa_has_options(${path} special)
    if(path MATCHES "\\.cc$" AND EXISTS ${path} AND NOT special
       AND NOT path MATCHES "^${PROJECT_BINARY_DIR}")
      list(APPEND paths ${path})
    else()
      list(APPEND alone ${source})
    endif()
  endforeach()
  execute_process(COMMAND ${PYTHON3} ${PROJECT_SOURCE_DIR}/cmake/unity_groups.py ${FASA_UNITY_LINES}
                          ${CMAKE_CURRENT_BINARY_DIR}/${target}_unity ${paths}
                  OUTPUT_VARIABLE grouped COMMAND_ERROR_IS_FATAL ANY)
  set_target_properties(${target} PROPERTIES SOURCES "${grouped};${alone}")
  cmake_language(EVAL CODE "cmake_language(DEFER CALL fasa_check_grouped ${paths})")
  # In a grouped source GCC warns about a class with members of types from an unnamed namespace.
  # That is safe here, because no header declares the class.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# fasa_library(name DEPENDS targets... [SOURCES files...] [NO_UNITY]): a static library of all
# sources in the current folder.
function(fasa_library name)
  cmake_parse_arguments(arg "NO_UNITY" "" "DEPENDS;SOURCES" ${ARGN})
  if(NOT arg_SOURCES)
    file(GLOB arg_SOURCES CONFIGURE_DEPENDS *.cc)
  endif()
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC fasa_flags ${arg_DEPENDS})
  target_precompile_headers(${name} REUSE_FROM fasa_headers)
  if(NOT arg_NO_UNITY)
    fasa_unity(${name})
  endif()
endfunction()
