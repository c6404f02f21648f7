# With RIDGE_UNITY, the files of a room are compiled together, at most 16 at a time: most of the
# compiler's time goes into the headers of CLI11, nlohmann-json and fmt, which are then read once a
# group. So names in unnamed namespaces must differ within a room, and within a folder of tests.
# tools/setup switches it on; builds that are changed file by file are faster without.

# The sources of TARGET form groups by folder, GROUP_SIZE files each.
function(ridge_unity TARGET GROUP_SIZE)
  if(NOT RIDGE_UNITY OR NOT TARGET ${TARGET})
    return()
  endif()
  set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # It takes the files of a group for headers, whose classes must have no members of unnamed namespaces.
    target_compile_options(${TARGET} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
  get_target_property(SOURCES ${TARGET} SOURCES)
  list(FILTER SOURCES INCLUDE REGEX "[.]cc$")
  foreach(SOURCE ${SOURCES})
    cmake_path(GET SOURCE PARENT_PATH FOLDER)
    string(REGEX REPLACE ".*/(src|tests)/" "" FOLDER "${FOLDER}")
    string(MAKE_C_IDENTIFIER "${FOLDER}" NAME)
    if(NOT DEFINED COUNT_${NAME})
      set(COUNT_${NAME} 0)
    endif()
    math(EXPR GROUP "${COUNT_${NAME}} / ${GROUP_SIZE}")
    math(EXPR COUNT_${NAME} "${COUNT_${NAME}} + 1")
    set_source_files_properties(${SOURCE} PROPERTIES UNITY_GROUP ${NAME}_${GROUP})
  endforeach()
endfunction()

ridge_unity(ridge_core 16)
ridge_unity(ridge_outer 16)
# Compiled alone: loops that exist once per instruction set, and what takes as long as a group, so that
# it compiles beside its room (Boost.Asio and Beast).
set(ALONE ${KERNEL_SOURCES} ${CMAKE_SOURCE_DIR}/src/load/http_client.cc)
set_source_files_properties(${ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
