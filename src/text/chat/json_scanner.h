// Reads one JSON value character by character and says when it ends or breaks.
#pragma once

#include <string>

namespace ridge {

class JsonScanner {
 public:
  enum class Result {
    more,   // the character belongs to the value, which goes on
    done,   // it is the value's last character
    after,  // the value ended before it: numbers end with what follows them
    bad,
  };
  Result read(char c);

 private:
  enum class State {
    value,        // before a value
    first_item,   // after [: a value or ]
    first_key,    // after {: a key or }
    key,          // after a comma in an object
    colon,        // after a key
    after_value,  // inside an array or object
    string,
    escape,
    unicode,  // the four digits of \uXXXX
    number,
    literal,
  };
  Result begin_value(char c);
  Result end_value();  // the character was its last one
  Result read_string(char c);
  Result read_number(char c);
  Result close(char bracket);

  State state_ = State::value;
  std::string open_;  // { and [, innermost last
  bool in_key_ = false;
  int digits_ = 0;         // of a \u escape still to come
  std::string token_;      // of a number so far
  const char* rest_ = "";  // of a literal still to come
};

}  // namespace ridge
