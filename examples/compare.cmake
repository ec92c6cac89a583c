# Runs an example and looks at what it gives; ctest runs this, see CMakeLists.txt.
#   PROGRAM    what to run, with ARGUMENTS (one string, quoted as in a shell)
#   EXIT       the exit status it must have; 0 if not given
#   EXPECTED   a file that its standard output must equal
#   OUTPUT     a regular expression that its standard output must match
#   ERROR      a regular expression that its standard error must match
#   INPUT      a file for its standard input
#   FILE       a file that is written first, with TEXT
if(NOT DEFINED EXIT)
  set(EXIT 0)
endif()
if(DEFINED FILE)
  file(WRITE ${FILE} "${TEXT}")
endif()
separate_arguments(arguments UNIX_COMMAND "${ARGUMENTS}")
if(DEFINED INPUT)
  set(input INPUT_FILE ${INPUT})
endif()
execute_process(COMMAND ${PROGRAM} ${arguments} ${input}
                RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE error)

set(wrong "")
if(NOT status STREQUAL EXIT)
  string(APPEND wrong "exit status ${status}, wanted ${EXIT}\n")
endif()
if(DEFINED EXPECTED)
  file(READ ${EXPECTED} expected)
  if(NOT output STREQUAL expected)
    string(APPEND wrong "standard output differs from ${EXPECTED}:\n${expected}")
  endif()
endif()
if(DEFINED OUTPUT AND NOT output MATCHES "${OUTPUT}")
  string(APPEND wrong "standard output does not match ${OUTPUT}\n")
endif()
if(DEFINED ERROR AND NOT error MATCHES "${ERROR}")
  string(APPEND wrong "standard error does not match ${ERROR}\n")
endif()
if(wrong)
  message(FATAL_ERROR "${wrong}\n--- standard output\n${output}\n--- standard error\n${error}")
endif()
