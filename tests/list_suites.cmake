# Writes OUT, which ctest reads: a test for each suite of TESTS. Suites whose name begins with Gpu have the
# label gpu, and those of the engine run a second time by the portable kernels. A suite that takes more than
# LIMIT seconds hangs.
execute_process(COMMAND ${TESTS} --gtest_list_tests OUTPUT_VARIABLE LISTED COMMAND_ERROR_IS_FATAL ANY TIMEOUT 60)
string(REGEX MATCHALL "(^|\n)[A-Za-z][A-Za-z0-9_/]*[.]" SUITES "${LISTED}")
set(PORTABLE "GpuRunner|GpuFormats|^GpuReleasedFormat|GpuCaches|GpuGoldens|^GpuLatents|GpuPages|GpuRanks|^GpuForward|^GpuGreedy|^GpuInFlight|^GpuBounds|^GpuMemory")
set(TEXT "")
function(suite NAME FILTER)
  list(JOIN ARGN " " PROPERTIES)
  string(APPEND TEXT "add_test(\"${NAME}\" \"${TESTS}\" \"--gtest_filter=${FILTER}.*\")\n"
    "set_tests_properties(\"${NAME}\" PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${LIMIT} ${PROPERTIES})\n")
  set(TEXT "${TEXT}" PARENT_SCOPE)
endfunction()
foreach(SUITE ${SUITES})
  string(REGEX REPLACE "[\n.]" "" SUITE "${SUITE}")
  if(SUITE MATCHES "(^|/)Gpu")
    suite(${SUITE} ${SUITE} LABELS gpu)
    if(SUITE MATCHES "${PORTABLE}")
      suite(portable/${SUITE} ${SUITE} LABELS gpu ENVIRONMENT RIDGE_CUDA_KERNELS=portable)
    endif()
  else()
    # The longest first: those with parameters, and those of ranks. Else they run alone in the end.
    set(COST 1)
    if(SUITE MATCHES "/|Rank")
      set(COST 100)
    endif()
    # One mpirun at a time, and its ranks count as two: beside others, one was twice seen to report a rank that
    # had ended early, without an error of ours.
    set(LOCK "")
    if(SUITE MATCHES "Mpi|^MeasureRanks$|^RanksCommand$")
      set(LOCK RESOURCE_LOCK mpirun PROCESSORS 2)
    endif()
    suite(${SUITE} ${SUITE} COST ${COST} ${LOCK})
  endif()
endforeach()
file(WRITE ${OUT} "${TEXT}")
