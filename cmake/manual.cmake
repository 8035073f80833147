# cmake -DPROGRAM=alea -DINTO=FOLDER -P cmake/manual.cmake: manual pages and shell completion, as
# the program gives them, in a tree like that of an installation's share.

function(keep file)
    get_filename_component(folder ${INTO}/${file} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    execute_process(COMMAND ${PROGRAM} help ${ARGN} OUTPUT_FILE ${INTO}/${file}
                    COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${INTO})
keep(man/man1/alea.1 --man)
execute_process(COMMAND ${PROGRAM} help --commands OUTPUT_VARIABLE commands
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" commands "${commands}")
foreach(command ${commands})
    keep(man/man1/alea-${command}.1 --man ${command})
endforeach()
keep(bash-completion/completions/alea --completion bash)
keep(zsh/site-functions/_alea --completion zsh)
keep(fish/vendor_completions.d/alea.fish --completion fish)
