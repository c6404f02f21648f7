# Builds web/ with Node and writes OUT: a C++ source holding the page, gzipped. Where Node is
# missing or npm cannot reach its registry, OUT holds no page and the build goes on.
#   cmake -DWEB=web -DOUT=page_data.cc -DVERSION=0.1.0 -P build_page.cmake
function(give_up WHY)
  message(STATUS "The page is left out: ${WHY}")
  file(WRITE ${OUT} "// Made by cmake/build_page.cmake: ${WHY}.
#include \"serve/page.h\"

std::span<const ridge::PageFile> ridge::page_files() { return {}; }
")
endfunction()

find_program(NODE node)
find_program(NPM npm)
if(NOT NODE OR NOT NPM)
  give_up("node and npm are not installed")
  return()
endif()

# Builds in several folders share web/node_modules: one installs, the others wait.
file(LOCK ${WEB}/.npm-lock TIMEOUT 240 RESULT_VARIABLE LOCKED)
set(STAMP ${WEB}/node_modules/.package-lock.json)
if(NOT EXISTS ${STAMP} OR ${WEB}/package-lock.json IS_NEWER_THAN ${STAMP})
  execute_process(
    COMMAND ${NPM} ci --no-audit --no-fund --fetch-retries=1 --fetch-timeout=20000
    WORKING_DIRECTORY ${WEB} RESULT_VARIABLE FAILED OUTPUT_VARIABLE LOG ERROR_VARIABLE LOG
    TIMEOUT 180)
  if(FAILED)
    file(LOCK ${WEB}/.npm-lock RELEASE)
    give_up("npm ci failed")
    return()
  endif()
  file(TOUCH ${STAMP})
endif()
file(LOCK ${WEB}/.npm-lock RELEASE)

# A page that does not build is a fault of the source, unlike a missing tool.
execute_process(COMMAND ${NODE} build.mjs ${OUT} ${VERSION} WORKING_DIRECTORY ${WEB}
  RESULT_VARIABLE FAILED)
if(FAILED)
  message(FATAL_ERROR "the page does not build")
endif()
