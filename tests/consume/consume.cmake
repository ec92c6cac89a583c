# Builds and runs the user's program of this folder in one `way`: installed, subdirectory or include.
set(work ${turnkey_build}/consume_${way})
file(REMOVE_RECURSE ${work})
file(MAKE_DIRECTORY ${work})
set(run COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)

if(way STREQUAL include)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  execute_process(COMMAND ${compiler} ${flags} -std=c++20 -I ${turnkey_source}/include -pthread
                  ${CMAKE_CURRENT_LIST_DIR}/main.cpp ${CMAKE_CURRENT_LIST_DIR}/second.cpp -o ${work}/consumer ${run})
else()
  if(way STREQUAL installed)
    execute_process(COMMAND ${CMAKE_COMMAND} --install ${turnkey_build} --prefix ${work}/prefix ${run})
    set(where -D CMAKE_PREFIX_PATH=${work}/prefix)
  else()
    set(where -D TURNKEY_SOURCE_DIR=${turnkey_source})
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -G ${generator} -D CMAKE_CXX_COMPILER=${compiler}
                  -D CMAKE_CXX_FLAGS=${flags} ${where} -S ${CMAKE_CURRENT_LIST_DIR} -B ${work} ${run})
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${work} ${run})
endif()
execute_process(COMMAND ${work}/consumer ${run})
