# One static library per folder of src/, its unit tests beside the code, and the compiler settings that all share.
#
#   isthmus_layer    a layer of src/ and its unit tests
#   isthmus_program  a test program, test tool or benchmark outside src/
#   isthmus_fuzzer   a libFuzzer program

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)

find_package(fmt REQUIRED)

# GoogleTest: Debian's library for this machine; for another one, built here from Debian's source package.
if(ISTHMUS_TESTS)
  if(CMAKE_CROSSCOMPILING)
    set(INSTALL_GTEST OFF)
    add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  else()
    find_package(GTest REQUIRED)
  endif()
endif()

add_library(isthmus_options INTERFACE)
target_include_directories(isthmus_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# -ffp-contract=off: a fused multiply-add happens where the source says so and nowhere else, or results would differ
# between instruction sets and compilers.
target_compile_options(isthmus_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror -ffp-contract=off
  -fstack-protector-strong
  # g++ 12 warns of impossible overlaps inside std::string (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
target_link_libraries(isthmus_options INTERFACE Threads::Threads)
if(ISTHMUS_SANITIZE)
  target_compile_options(isthmus_options INTERFACE -fsanitize=${ISTHMUS_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(isthmus_options INTERFACE -fsanitize=${ISTHMUS_SANITIZE})
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(isthmus_options INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  target_link_options(isthmus_options INTERFACE -Wl,-z,relro,-z,now)
else()
  target_compile_definitions(isthmus_options INTERFACE _GLIBCXX_ASSERTIONS)
endif()

# lld links the larger programs several times faster than the default linker.
find_program(LLD ld.lld)
if(LLD AND NOT CMAKE_CROSSCOMPILING)
  target_link_options(isthmus_options INTERFACE -fuse-ld=lld)
endif()

# isthmus_layer(NAME [DEPS layer…] [LIBS target…] [TEST_LIBS target…]): library isthmus_NAME of this folder's *.cc and,
# when tests are on, the program NAME_test of its *_test.cc. DEPS are layers, linked publicly.
function(isthmus_layer name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS;TEST_LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(TRANSFORM ARG_DEPS PREPEND isthmus_)
  if(sources)
    add_library(isthmus_${name} STATIC ${sources})
    target_link_libraries(isthmus_${name} PUBLIC isthmus_options ${ARG_DEPS} ${ARG_LIBS})
  else()
    add_library(isthmus_${name} INTERFACE)
    target_link_libraries(isthmus_${name} INTERFACE isthmus_options ${ARG_DEPS} ${ARG_LIBS})
  endif()
  set_property(GLOBAL APPEND PROPERTY ISTHMUS_LAYER_TARGETS isthmus_${name})
  if(ISTHMUS_TESTS AND tests)
    isthmus_program(${name}_test SOURCES ${tests} LIBS isthmus_${name} ${ARG_TEST_LIBS} UNIT_TEST)
  endif()
endfunction()

# isthmus_program(NAME SOURCES file… [LIBS target…] [UNIT_TEST | REAL_TEST]): a program in build/<preset>/tests. UNIT_TEST
# links GoogleTest and lists the program for the unit stage; REAL_TEST the same for the stage that has real models
# (ISTHMUS_TEST_MODELS names their folder).
function(isthmus_program name)
  cmake_parse_arguments(ARG "UNIT_TEST;REAL_TEST" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE isthmus_options ${ARG_LIBS})
  target_compile_definitions(${name} PRIVATE ISTHMUS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(ARG_UNIT_TEST OR ARG_REAL_TEST)
    target_link_libraries(${name} PRIVATE GTest::gtest_main GTest::gmock)
  endif()
  if(ARG_UNIT_TEST)
    set_property(GLOBAL APPEND PROPERTY ISTHMUS_UNIT_TESTS ${name})
  elseif(ARG_REAL_TEST)
    set_property(GLOBAL APPEND PROPERTY ISTHMUS_REAL_TESTS ${name})
  endif()
endfunction()

# isthmus_fuzzer(NAME SOURCE): the libFuzzer program fuzz_NAME, linked to every layer that is built.
function(isthmus_fuzzer name source)
  get_property(layers GLOBAL PROPERTY ISTHMUS_LAYER_TARGETS)
  add_executable(fuzz_${name} ${source})
  target_link_libraries(fuzz_${name} PRIVATE ${layers})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  set_property(GLOBAL APPEND PROPERTY ISTHMUS_FUZZERS ${name})
endfunction()

# Writes what was declared above to build/<preset>/tests.json, where tools/test finds it.
function(isthmus_write_test_list)
  set(json "{\n")
  foreach(kind UNIT_TESTS REAL_TESTS FUZZERS)
    get_property(names GLOBAL PROPERTY ISTHMUS_${kind})
    list(TRANSFORM names PREPEND "\"")
    list(TRANSFORM names APPEND "\"")
    list(JOIN names ", " names)
    string(TOLOWER ${kind} key)
    string(APPEND json "  \"${key}\": [${names}],\n")
  endforeach()
  string(JOIN "\", \"" emulator ${CMAKE_CROSSCOMPILING_EMULATOR})
  if(emulator)
    set(emulator "\"${emulator}\"")
  endif()
  string(APPEND json "  \"emulator\": [${emulator}]\n}\n")
  file(WRITE ${CMAKE_BINARY_DIR}/tests.json "${json}")
endfunction()
