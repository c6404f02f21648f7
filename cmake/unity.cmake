# With RIDGE_UNITY, the files of a room are compiled together, at most 16 at a time: most of the
# compiler's time goes into the headers of CLI11, nlohmann-json and fmt, which are then read once a
# group. So names in unnamed namespaces must differ within a room. tools/setup switches it on; builds
# that are changed file by file are faster without.
if(NOT RIDGE_UNITY)
  return()
endif()
set(GROUP_SIZE 16)
set_target_properties(ridge_core ridge_outer PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
# The other rooms include few of those headers, or hold code per instruction set.
foreach(ROOM base hub machine model roofline roofline/kernels predict measure plan diagnose diagnose/readers lab validate serve cli
    engine engine/weights engine/convert engine/grammar engine/tokenizer engine/chat)
  file(GLOB SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${ROOM}/*.cc)
  list(REMOVE_ITEM SOURCES ${CMAKE_SOURCE_DIR}/src/cli/main.cc)
  string(REPLACE "/" "_" NAME ${ROOM})
  set(COUNT 0)
  foreach(SOURCE ${SOURCES})
    math(EXPR GROUP "${COUNT} / ${GROUP_SIZE}")
    math(EXPR COUNT "${COUNT} + 1")
    set_source_files_properties(${SOURCE} PROPERTIES UNITY_GROUP ${NAME}_${GROUP})
  endforeach()
endforeach()
# Highway's loops, once per instruction set.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/lab/lab_kernels.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
# It has a Family of its own, which is not model/'s.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/engine/weights/architecture.cc
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
# Boost.Asio and Beast take longer to compile than the rest of their room: they compile beside it.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/serve/http.cc ${CMAKE_SOURCE_DIR}/src/serve/http_connection.cc
  ${CMAKE_SOURCE_DIR}/src/serve/http_reader.cc ${CMAKE_SOURCE_DIR}/src/serve/http_text.cc
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
