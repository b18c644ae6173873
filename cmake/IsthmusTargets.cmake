# One static library per folder of src/, its unit tests beside the code, and the compiler settings that all share.

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

find_package(Threads REQUIRED)
if(ISTHMUS_TESTS)
  find_package(GTest REQUIRED)
endif()

add_library(isthmus_options INTERFACE)
target_include_directories(isthmus_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# -ffp-contract=off: a fused multiply-add happens where the source says so and nowhere else, or results would differ
# between instruction sets and compilers.
target_compile_options(isthmus_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror -ffp-contract=off
  -fstack-protector-strong)
target_link_libraries(isthmus_options INTERFACE Threads::Threads)
if(ISTHMUS_SANITIZE)
  target_compile_options(isthmus_options INTERFACE -fsanitize=${ISTHMUS_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(isthmus_options INTERFACE -fsanitize=${ISTHMUS_SANITIZE})
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(isthmus_options INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
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
  if(ISTHMUS_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE isthmus_${name} GTest::gtest_main GTest::gmock ${ARG_TEST_LIBS})
    target_compile_definitions(${name}_test PRIVATE ISTHMUS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    set_property(GLOBAL APPEND PROPERTY ISTHMUS_UNIT_TESTS ${name}_test)
    set_target_properties(${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  endif()
endfunction()
