from ottla.cli import main

main()
