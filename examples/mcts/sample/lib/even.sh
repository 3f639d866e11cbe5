if [ $(($1 % 2)) -eq 0 ]; then echo yes; else echo no; fi
